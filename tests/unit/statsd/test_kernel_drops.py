"""How many packets Linux has dropped, as its table of sockets says."""

import os
import socket

from ingest.statsd.statsd import drops_in, kernel_drops

TABLE = """\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
14682: 00000000:A04E 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 404695 2 0000daf5bef8 3
14877: 0100007F:E111 00000000:0000 07 00000000:00001B00 00:00000000 00000000     0        0 404694 2 00002bba2f72 997
"""


def test_the_row_of_the_socket_says_it() -> None:
    rows = TABLE.splitlines()
    assert [drops_in(rows, inode) for inode in (404695, 404694, 40469, 997)] == [3, 997, 0, 0]


def test_a_socket_that_is_in_no_table_has_none() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        assert kernel_drops(sock) == 0


def test_drops_of_a_real_socket() -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            sock = socket.socket(family, socket.SOCK_DGRAM)
            sock.bind((host, 0))
        except OSError:  # a machine without IPv6
            assert family == socket.AF_INET6
            continue
        with sock, socket.socket(family, socket.SOCK_DGRAM) as sender:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.setblocking(False)
            assert kernel_drops(sock) == 0
            for _ in range(200):
                sender.sendto(b"x" * 100, sock.getsockname())
            received = 0
            while True:
                try:
                    sock.recv(1_000)
                except BlockingIOError:
                    break
                received += 1
            assert 0 < received < 200
            if os.path.exists("/proc/net/udp"):  # noqa: PTH110 (no other system has it)
                assert kernel_drops(sock) == 200 - received

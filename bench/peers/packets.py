"""Sends StatsD lines over UDP, one in each packet, as fast as it can, and prints how many.

`python -m bench.peers.packets PORT SECONDS LINE`
"""

import contextlib
import socket
import sys
import time


def main(port: str, seconds: str, line: str) -> None:
    packet, sent = line.encode(), 0
    until = time.monotonic() + float(seconds)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", int(port)))
        send = sender.send
        while time.monotonic() < until:
            for _ in range(100):
                with contextlib.suppress(ConnectionRefusedError):
                    send(packet)
            sent += 100
    print(sent)


if __name__ == "__main__":
    main(*sys.argv[1:])

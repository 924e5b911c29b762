"""Finds out how many packets the kernel has dropped, since the buffer of a UDP socket was full."""

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_TABLES: Final = {socket.AF_INET: Path("/proc/net/udp"), socket.AF_INET6: Path("/proc/net/udp6")}
_INODE: Final = 9


def kernel_drops(sock: socket.socket) -> int:
    """How many since the socket was made; 0 where there is no Linux to ask."""
    try:
        with _TABLES[sock.family].open() as table:
            return drops_in(table, os.fstat(sock.fileno()).st_ino)
    except (OSError, KeyError):
        return 0


def drops_in(table: Iterable[str], inode: int) -> int:
    """The last column of the socket's row."""
    for row in table:
        columns = row.split()
        if len(columns) > _INODE and columns[_INODE] == str(inode):
            return int(columns[-1])
    return 0

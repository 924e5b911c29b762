"""Makes Unix sockets to listen on. Only the user and the group of the process may connect to their files."""

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from shared.model.errors import SettingsError

PREFIX: Final = "unix:"
_OTHERS: Final = 0o117
"""What others and executing would add to 0660."""


def listen_at(path: Path, backlog: int) -> socket.socket:
    """A socket that listens at this path. The file of a process that was killed is replaced.

    Raises `SettingsError` if another process listens there, or if the file is no socket.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        umask = os.umask(_OTHERS)
        try:
            sock.bind(str(path))
        finally:
            os.umask(umask)
        sock.listen(backlog)
    except OSError as error:  # also of a path that is too long, which has no number
        sock.close()
        raise SettingsError(f"can't listen on {PREFIX}{path}: {error.strerror or error}") from error
    except SettingsError:
        sock.close()
        raise
    return sock


def remove(path: Path, file: os.stat_result) -> None:
    """Remove the file of a socket that has been closed, unless another process has replaced it."""
    with suppress(OSError):
        there = path.lstat()
        if (there.st_dev, there.st_ino) == (file.st_dev, file.st_ino):
            path.unlink()


def _remove_stale(path: Path) -> None:
    try:
        there = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(there.st_mode):
        raise SettingsError(f"{path} exists and is not a socket: choose another path, or move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # if its queue is full, the other process is alive, too
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            remove(path, there)
            return
        except BlockingIOError:
            pass
    raise SettingsError(f"another process listens on {PREFIX}{path}: stop it, or choose another path")

"""Tells which processes have a spool file open. Each locks a file beside it, and the lock ends with the process."""

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from uuid import uuid4


class SpoolHolders:
    """The holders of one spool file. A process that stands still keeps its lock; one that ended has lost it, however it
    ended. Several processes may be one member.
    """

    def __init__(self, folder: Path, spool: str) -> None:
        """`folder`: of the file itself, not of a link to it. `spool`: the file's id, since its name may change."""
        self._folder = folder
        self._spool = spool
        self._locks = re.compile(re.escape(spool) + r"\.([^.]+)\.[0-9a-f]{8}\.holder")
        self._held: int | None = None

    def hold(self, member: str) -> None:
        """Hold the file for the member, until `close` or the end of this process."""
        own = self._folder / f"{self._spool}.{member}.{uuid4().hex[:8]}.holder"
        new = own.with_suffix(".new")
        self._held = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.fchmod(self._held, 0o600)  # whatever the umask is
        fcntl.flock(self._held, fcntl.LOCK_EX)
        new.rename(own)  # only now, so that nobody sees it without its lock

    def alive(self) -> set[str]:
        """The members that have the file. A member that had it and is not among them adds no more rows."""
        found = [(match[1], path) for path in self._folder.iterdir() if (match := self._locks.fullmatch(path.name))]
        return {member for member, path in found if not _removed(path)}

    def close(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _removed(path: Path) -> bool:
    """Whether the process of the lock file is gone. If so, the file is removed."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except PermissionError:  # another user's file, so its process may live
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    with suppress(FileNotFoundError, PermissionError):
        path.unlink()
    return True

"""Which processes have a spool file open: each holds a lock file beside it, which ends with the process."""

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from uuid import uuid4


class SpoolHolders:
    """Of one spool file. A process that stands still holds its lock; one that is gone does not, however it went.

    Several processes may be one member.
    """

    def __init__(self, folder: Path, spool: str) -> None:
        """`folder` of the file itself, and not of a link to it. `spool`: its id, since its name may change."""
        self._folder = folder
        self._spool = spool
        self._locks = re.compile(re.escape(spool) + r"\.([^.]+)\.[0-9a-f]{8}\.holder")
        self._held: int | None = None

    def hold(self, member: str) -> None:
        """Until `close`, or the end of this process."""
        own = self._folder / f"{self._spool}.{member}.{uuid4().hex[:8]}.holder"
        new = own.with_suffix(".new")
        self._held = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        new.rename(own)  # nobody sees it without its lock

    def alive(self) -> set[str]:
        """Members that have it. Whoever had it and is not among them adds no row any more."""
        found = [(match[1], path) for path in self._folder.iterdir() if (match := self._locks.fullmatch(path.name))]
        return {member for member, path in found if not _removed(path)}

    def close(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _removed(path: Path) -> bool:
    """Remove the lock file if its process is gone."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except PermissionError:  # another user's: nobody can tell
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

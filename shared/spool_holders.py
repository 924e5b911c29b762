"""Which processes have a spool file open: each holds a lock file beside it, which ends with the process."""

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

_END: Final = ".holder"


class SpoolHolders:
    """Of one spool file. A process that stands still holds its lock; one that is gone does not, however it went.

    Several processes may be one member.
    """

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._held: int | None = None
        self._own: Path | None = None

    def hold(self, member: str) -> None:
        """Until `close`, or the end of this process."""
        if self._held is not None:
            return
        self._own = self._spool.with_name(f"{self._spool.name}.{member}.{uuid4().hex[:8]}{_END}")
        new = self._own.with_suffix(".new")
        self._held = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        new.rename(self._own)  # nobody sees it without its lock

    def dead(self) -> Collection[str]:
        """Members that had it and are gone. Ask before you read the file's rows, since these add none any more."""
        locks = [*self._locks()]
        alive = {member for member, path in locks if path == self._own or not _free(path)}
        return {member for member, _ in locks} - alive

    def forget(self, members: Collection[str]) -> None:
        """Their rows are with this process now."""
        for member, path in self._locks():
            if member in members:
                with suppress(FileNotFoundError):
                    path.unlink()

    def close(self) -> None:
        """Its own lock file stays: others find that it is gone."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _locks(self) -> Iterator[tuple[str, Path]]:
        begin = f"{self._spool.name}."
        for path in [*self._spool.parent.iterdir()]:
            if path.name.startswith(begin) and path.name.endswith(_END):
                yield path.name[len(begin) :].split(".")[0], path


def _free(path: Path) -> bool:
    try:
        found = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(found)
    return True

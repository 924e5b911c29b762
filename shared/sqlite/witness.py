"""Owns what is known of a data file outside of it: that it was there, which one it was, and how far it had got.

Without that, a file that was removed, an empty mount point and a first start look the same, and an empty file would
take the place of all counts. What is known stands in two places: in the lock file beside the data file, which survives
when the data file alone goes, and in a folder elsewhere, which survives when the whole volume goes.
"""

import contextlib
import json
import os
import socket
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from shared.model.errors import LostFileError
from shared.sqlite.names import real

IN_USE: Final[Counter[tuple[int, int]]] = Counter()
"""Device and inode of the data files that this process has open. To close another descriptor of one of them would drop
the locks that SQLite holds on it, so they are not looked at again."""
TRIES: Final = 3
"""To read a file while another process moves its log into it."""
_ROOM: Final = 256
"""Bytes of a record. All have the same length, so that one overwrites another in a single write."""
_TRUST: Final = (
    "`countersink doctor --trust-file` accepts what is there now, and where nothing is the next start makes a new file"
)


class Sighting(NamedTuple):
    """A data file at one moment."""

    id: str
    """Random, and made with the file."""
    progress: int
    """Rises with each commit that changes a count."""


def sighting_of(db: sqlite3.Connection) -> Sighting:
    found = db.execute(
        "SELECT id, (SELECT time FROM store) + (SELECT coalesce(sum(seq), 0) FROM sqlite_sequence) FROM broker"
    ).fetchone()
    return Sighting(*found)


def uri_of(path: Path) -> str:
    """With an empty authority, as a path may begin with two slashes."""
    return f"file://{quote(os.fsencode(path.absolute()))}"


def sighting_without_log(path: Path) -> Sighting | None:
    """What the file alone says, whatever its log would add. None if it can't be read: opening it says why."""
    for _ in range(TRIES):
        try:
            with closing(sqlite3.connect(f"{uri_of(path)}?mode=ro&immutable=1", uri=True)) as db:
                return sighting_of(db)
        except sqlite3.OperationalError as error:
            if str(error).startswith("no such"):  # table or column
                return Sighting("", 0)
        except sqlite3.Error:
            continue
    return None


class FileWitness:
    """Of one path. `elsewhere`: a folder on another volume, if there is one."""

    def __init__(self, path: Path, elsewhere: Path | None = None) -> None:
        self._path = real(path)
        self._log = Path(f"{self._path}-wal")
        self._beside = Path(f"{self._path}-turn")
        self._elsewhere: Path | None = None
        if elsewhere is not None:  # homes may be shared by machines
            # By the name that is used, so that a link which leads somewhere else is noticed, too.
            name = sha256(f"{socket.gethostname()}:{path.absolute()}".encode(errors="surrogateescape")).hexdigest()[:32]
            self._elsewhere = elsewhere / f"{name}.json"

    def check(self) -> None:
        """`LostFileError` if something else was here before. Changes nothing."""
        if (flaw := self.flaw()) is not None:
            raise LostFileError(flaw)

    def flaw(self) -> str | None:
        """Why the file is not the one that was here before, and what to do; None if nothing says so."""
        known, locked = [*self._known()], self._beside.exists()  # before the look at the file, which is made first
        try:
            there = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            there = None
        except OSError:
            return None  # opening it says why
        if there is None or not there.st_size:
            how = "gone" if there is None else "empty"
            if known or (there is None and locked):
                return (
                    f"{self._path} is {how}, and it was there before. Is its volume mounted? Put the file, or a backup,"
                    f" back. {_TRUST}"
                )
            return self._of_log(f"{self._path} is {how}")
        if not known or IN_USE[there.st_dev, there.st_ino]:
            return None
        now = sighting_without_log(self._path)
        if now is None or all(now.id == one.id and now.progress >= one.progress for one in known):
            return None
        what = "is an older copy of" if all(now.id == one.id for one in known) else "is not"
        return (
            f"{self._path} {what} the file that was here before. If you put a backup in its place, remove {self._log}"
            f" and {self._path}-shm of the earlier file first, if they are there. {_TRUST}"
        )

    def remember(self, sighting: Sighting) -> None:
        """That all of this stands in the file itself, without its log. What can't be kept is not kept."""
        record = json.dumps({"file": str(self._path), **sighting._asdict()})
        small = json.dumps(sighting._asdict()).ljust(_ROOM - 1) + "\n"
        with contextlib.suppress(OSError):
            turn = os.open(self._beside, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(turn, small.encode(), 0)
            finally:
                os.close(turn)
        if self._elsewhere is not None:
            with contextlib.suppress(OSError):
                self._elsewhere.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                new = self._elsewhere.with_suffix(f".{os.getpid()}")
                new.write_text(record + "\n")
                new.replace(self._elsewhere)

    def forget(self) -> None:
        """Somebody says that what is there now is right. `LostFileError` if a log of another file is beside it."""
        if (flaw := self.flaw()) is None:
            return
        if (left := self._of_log("the log may be of an earlier file")) is not None:
            raise LostFileError(left)
        with contextlib.suppress(FileNotFoundError):
            self._beside.unlink()  # nobody takes turns on a file that is not the one they opened
        if self._elsewhere is not None:
            self._elsewhere.unlink(missing_ok=True)
        if (flaw := self.flaw()) is not None:
            raise LostFileError(flaw)

    def _of_log(self, why: str) -> str | None:
        with contextlib.suppress(OSError):
            if self._log.stat().st_size:
                return (
                    f"{why}, and {self._log} is there and holds something. If it belongs to the file that you put here,"
                    f" take it in with `sqlite3 {self._path} 'PRAGMA wal_checkpoint(TRUNCATE)'`. If not, move it away"
                )
        return None

    def _known(self) -> Iterator[Sighting]:
        for place in (self._beside, self._elsewhere):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if place is not None and place.stat().st_size:
                    said = json.loads(place.read_text())
                    yield Sighting(str(said["id"]), int(said["progress"]))


def folder_elsewhere(environment: Mapping[str, str]) -> Path | None:
    """Where programs of this user keep what they have to know of their earlier runs."""
    if state := environment.get("XDG_STATE_HOME", ""):
        return Path(state, "countersink", "files") if Path(state).is_absolute() else None
    if home := environment.get("HOME", ""):
        return Path(home, ".local", "state", "countersink", "files")
    return None

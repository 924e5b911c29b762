"""Remembers a data file outside of it: that it was there, which one it was, and how far it had got.

Without that, a file that was removed, an empty mount point and a first start look the same, and an empty file would
replace all counts. Two places remember: the lock file beside the data file, which survives if only the data file is
lost, and a folder elsewhere, which survives if the whole volume is lost.
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
from shared.sqlite.file_names import real
from shared.sqlite.private_files import make_file, make_folder

IN_USE: Final[Counter[tuple[int, int]]] = Counter()
"""Device and inode of the data files that this process has open. Closing another descriptor of such a file would drop
the locks that SQLite holds on it, so it is not read again."""
TRIES: Final = 3
"""Tries to read a file while another process moves its log into it."""
_ROOM: Final = 256
"""Bytes of a record. All have the same length, so that one overwrites another in a single write."""
_TRUST: Final = (
    "`countersink doctor --trust-file` accepts what is there now; if nothing is there, the next start makes a new file"
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
    """The URI of the file. Its authority is empty, since a path may begin with two slashes."""
    return f"file://{quote(os.fsencode(path.absolute()))}"


def sighting_without_log(path: Path) -> Sighting | None:
    """What the file says without its log. None if it can't be read; opening it will tell why."""
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
    """Remembers the file at one path. `elsewhere`: a folder on another volume, if there is one."""

    def __init__(self, path: Path, elsewhere: Path | None = None) -> None:
        self._path = real(path)
        self._log = Path(f"{self._path}-wal")
        self._beside = Path(f"{self._path}-turn")
        self._elsewhere: Path | None = None
        if elsewhere is not None:
            # Several machines may share a home, so the name has the machine's. It has the path that is used, so that a
            # link which leads somewhere else is noticed, too.
            name = sha256(f"{socket.gethostname()}:{path.absolute()}".encode(errors="surrogateescape")).hexdigest()[:32]
            self._elsewhere = elsewhere / f"{name}.json"

    def check(self) -> None:
        """Raise `LostFileError` if another file was here before. Changes nothing."""
        if (flaw := self.flaw()) is not None:
            raise LostFileError(flaw)

    def flaw(self) -> str | None:
        """Why the file is not the one that was here before, and what to do; None if nothing says so."""
        known, locked = [*self._known()], self._beside.exists()  # read before the file, which is made before these
        try:
            there = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            there = None
        except OSError:
            return None  # opening it will tell why
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
        """Remember that the file itself, without its log, has got this far. Skips a place that can't be written."""
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
                make_folder(self._elsewhere.parent)
                new = self._elsewhere.with_suffix(f".{os.getpid()}")
                make_file(new)
                new.write_text(record + "\n")
                new.replace(self._elsewhere)

    def forget(self) -> None:
        """Accept what is there now. Raises `LostFileError` if the log of another file may be beside it."""
        if (flaw := self.flaw()) is None:
            return
        if (left := self._of_log("the log may be of an earlier file")) is not None:
            raise LostFileError(left)
        with contextlib.suppress(FileNotFoundError):
            self._beside.unlink()  # safe: no process locks it to write to a file other than the one it opened
        if self._elsewhere is not None:
            self._elsewhere.unlink(missing_ok=True)
        if (flaw := self.flaw()) is not None:
            raise LostFileError(flaw)

    def _of_log(self, why: str) -> str | None:
        with contextlib.suppress(OSError):
            if self._log.stat().st_size:
                return (
                    f"{why}, and {self._log} is there and is not empty. If it belongs to the file that you put here,"
                    f" merge it with `sqlite3 {self._path} 'PRAGMA wal_checkpoint(TRUNCATE)'`. If not, move it away"
                )
        return None

    def _known(self) -> Iterator[Sighting]:
        for place in (self._beside, self._elsewhere):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if place is not None and place.stat().st_size:
                    said = json.loads(place.read_text())
                    yield Sighting(str(said["id"]), int(said["progress"]))


def folder_elsewhere(environment: Mapping[str, str]) -> Path | None:
    """The folder in which programs of this user keep state between runs; None if the environment names none."""
    if state := environment.get("XDG_STATE_HOME", ""):
        return Path(state, "countersink", "files") if Path(state).is_absolute() else None
    if home := environment.get("HOME", ""):
        return Path(home, ".local", "state", "countersink", "files")
    return None

"""Recognises a data file, and keeps it private. A spool is a data file, too.

For example, `countersink up` runs on /data/c.db, and these are all the files:

    /data/c.db         the data; its table `broker` holds a random id that was made with the file
    /data/c.db-wal     SQLite's log: what was committed and is not in c.db yet
    /data/c.db-shm     SQLite's index of the log
    /data/c.db-schema-15  a copy of c.db, from before it was converted for a later release
    /data/c.db-turn    the lock by which processes take turns to write; in it, the last sighting of c.db
    ~/.local/state/countersink/files/HASH.json          the same sighting, on another volume

A sighting is the id and the progress, a number that rises with each commit that changes a count: 7f3a at 5,120.
Then one of these accidents happens, and the process starts again, or still runs:

1. The volume is not mounted: c.db is gone, but the home folder knows 7f3a. The start refuses. SQLite would make an
   empty file, and reads would answer `value: 0`.
2. Somebody restores a copy at 4,000: the id is right, but the progress is less than 5,120. The start refuses.
3. Somebody puts another file there: the id is 91bc. The start refuses.
4. c.db is gone and its log is not, so the log may be of any file. The start refuses: SQLite would drop the log.
5. c.db is removed or replaced while a process has it open. The next commit or read fails with `DamagedError`, since the
   file has another inode now. SQLite would continue with the deleted file.
6. A hard link, or a mount of c.db alone, gives the file a second name with a log of its own. The start refuses.
7. A first start is killed: c.db and c.db-turn are empty. Nothing is known of the file, so the next start makes it.

After 1 to 3, `countersink doctor --trust-file` accepts what is there; after 4 it asks you to merge the log or move it
away first. Before SQLite opens a file, it is read without its log. So a sighting is noted only when all of the log has
been moved into the file.
"""

import contextlib
import fcntl
import json
import logging
import os
import re
import socket
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from errno import ELOOP
from glob import escape
from hashlib import sha256
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG, S_ISSOCK, S_ISVTX
from tempfile import mkstemp
from typing import Final, NamedTuple
from urllib.parse import quote

from shared.model.errors import CountersinkError, DamagedError, LostFileError, SettingsError

# Makes bytes reach the disk itself. On macOS fsync leaves them in the drive's cache, which a power failure empties.


PRAGMAS: Final = ("synchronous = FULL", "fullfsync = 1", "checkpoint_fullfsync = 1")
"""The last two have an effect on macOS only."""


def set_durable(db: sqlite3.Connection) -> None:
    """Make this connection sync what it commits, and what it moves from the log to the file."""
    for pragma in PRAGMAS:
        db.execute(f"PRAGMA {pragma}")


def to_disk(file: int) -> None:
    """Wait until all bytes that were written to this descriptor are on the disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(file)


LONGEST_LOG: Final = 6 * 2**20
"""Bytes. SQLite itself starts the log again at 4 MiB, but only if nobody reads at that moment."""
LOOK_AT_LOG: Final = 0.02
"""Seconds between two looks at its length."""
READERS_END_WITHIN_MS: Final = 200
"""Milliseconds in which readers must end. Reads that begin meanwhile do not need the log."""
PAUSE_OF_LOG: Final = 20 * READERS_END_WITHIN_MS / 1_000
"""Seconds until the next try after one that failed, since all writers have waited for it."""
COPIED: Final = 2**16


class Log:
    """The log of one file. Use it in the writer's thread only."""

    def __init__(self, file: Path) -> None:
        self._path = f"{file}-wal"
        self._next = 0.0
        self.inherited = True
        """Whether it may hold what another process wrote and could not sync. If so, don't move it into the file."""

    def inherit(self) -> None:
        """Write the log once more, over itself, and sync it. Call it before the first commit, with the write lock.

        If the last process could not sync the log and was killed, the log can be read but is on no disk, though the
        kernel takes it for written. What is appended to it would be lost with it. Readers see no difference.
        """
        if self.inherited:
            log = os.open(self._path, os.O_RDWR)
            try:
                at = 0
                while some := os.pread(log, COPIED, at):
                    at += os.pwrite(log, some, at)
                to_disk(log)
            finally:
                os.close(log)
            self.inherited = False

    def shorten(self, db: sqlite3.Connection) -> None:
        """If the log is too long, move all of it into the file and free its space. While readers follow one another
        closely, SQLite never does so by itself.
        """
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_AT_LOG
        with contextlib.suppress(OSError, sqlite3.Error):  # the next commit reports what is wrong
            if os.stat(self._path).st_size <= LONGEST_LOG:  # noqa: PTH116 (after commits)
                return
            (before,) = db.execute("PRAGMA busy_timeout").fetchone()
            db.execute(f"PRAGMA busy_timeout = {READERS_END_WITHIN_MS}")
            try:
                (busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                db.execute(f"PRAGMA busy_timeout = {before}")
            if busy:
                self._next = time.monotonic() + PAUSE_OF_LOG


# What the file lies on: which file system, and whether a volume that ends with a container or a Pod.


NETWORK: Final = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "fuse.sshfs"}
SHARED: Final = {"9p", "virtiofs", "drvfs", "vboxsf", "fuse.glusterfs", "fuse.gcsfuse"}
"""These may be shared with other machines."""
MEMORY: Final = {"tmpfs", "ramfs"}
_LAYERS: Final = {"overlay", "aufs", "fuse.fuse-overlayfs"}
"""A container's own file systems, which are deleted with it."""
_EMPTY_DIR: Final = "/volumes/kubernetes.io~empty-dir/"
"""Kubernetes deletes these volumes with their Pod, though the file system that they are on outlives it."""
_ANONYMOUS: Final = re.compile("/volumes/[0-9a-f]{64}/_data$")
"""An unnamed volume of Docker or Podman. The next container gets another one."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A row of the table of mounts."""

    point: str = ""
    kind: str = ""
    """The kind of the file system; empty if it is unknown."""
    root: str = ""
    """The folder in that file system which is mounted."""


def mounts() -> str:
    """The kernel's table of mounts; empty if this is not Linux."""
    with contextlib.suppress(OSError):
        return Path("/proc/self/mountinfo").read_text()
    return ""


def mount_of(folder: Path, table: str) -> Mount:
    """The longest mount point above the folder decides; of several mounts on one point, the last."""
    folder, best = folder.resolve(), Mount()
    for mount in mounts_in(table):
        if len(mount.point) >= len(best.point) and folder.is_relative_to(mount.point):
            best = mount
    return best


def why_ephemeral(folder: Path, table: str) -> str | None:
    """The kind of volume, if it is deleted with its container or Pod, or at the next boot. Otherwise None."""
    _, kind, root = mount_of(folder, table)
    if kind in MEMORY:
        return f"in memory ({kind})"
    if kind in _LAYERS:
        return f"a container's own layer ({kind})"
    if _EMPTY_DIR in f"{root}/":
        return "an emptyDir volume of Kubernetes"
    return "a container's volume without a name" if _ANONYMOUS.search(root) else None


def mounts_in(table: str) -> Iterator[Mount]:
    for line in table.splitlines():
        row, _, rest = line.partition(" - ")
        if rest:
            root, point = (_OCTAL.sub(lambda code: chr(int(code[1], 8)), text) for text in row.split(" ")[3:5])
            yield Mount(point, rest.split(" ")[0], root)


_log = logging.getLogger(__name__)

IN_USE: Final[Counter[tuple[int, int]]] = Counter()
"""Device and inode of the data files that this process has open. Closing another descriptor of such a file would drop
the locks that SQLite holds on it, so it is not read again."""
BETWEEN_CHECKS: Final = 0.01
"""Seconds between two looks at the files by readers."""
REMEMBER: Final = 10.0
"""Seconds between two notes of how far the file has got."""
TRIES: Final = 3
"""Tries to read a file while another process moves its log into it."""
_ROOM: Final = 256
"""Bytes of a record. All have the same length, so that one overwrites another in a single write."""
_TRUST: Final = (
    "`countersink doctor --trust-file` accepts the present state; if there is no file, the next start makes a new one"
)

# Which file it is.


class Sighting(NamedTuple):
    """A data file at one moment."""

    id: str
    progress: int


def sighting_of(db: sqlite3.Connection) -> Sighting:
    found = db.execute(
        "SELECT id, (SELECT time FROM store) + (SELECT coalesce(sum(seq), 0) FROM sqlite_sequence) FROM broker"
    ).fetchone()
    return Sighting(*found)


def sighting_without_log(path: Path) -> Sighting | None:
    """What the file says without its log. None if it can't be read; opening it will tell why."""
    for _ in range(TRIES):
        try:
            with opened(path, "ro&immutable=1") as db:
                return sighting_of(db)
        except sqlite3.OperationalError as error:
            if str(error).startswith("no such"):  # table or column
                return Sighting("", 0)
        except sqlite3.Error:
            continue
    return None


def opened(path: Path, mode: str) -> "closing[sqlite3.Connection]":
    """A connection to an existing file, to look at it: ro or rw, and other parameters of a URI of SQLite."""
    uri = f"file://{quote(os.fsencode(path.absolute()))}"  # without an authority: a path may begin with two slashes
    return closing(sqlite3.connect(f"{uri}?mode={mode}", uri=True, isolation_level=None))


RESTORE: Final = "stop all processes on the file and put a backup in its place"
"""What to do if it is damaged."""


def is_damage(error: BaseException) -> bool:
    """Whether SQLite found that the file is damaged, or is no database."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_locked(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def why_not_opened(path: Path, error: BaseException) -> str:
    """What to do if the file can't be opened."""
    if is_locked(error):
        return "Another program has locked it: close that program, or wait until it ends"
    if is_damage(error):
        return f"Was the file overwritten or damaged? Then {RESTORE}. Or name another folder"
    with contextlib.suppress(OSError):
        if os.statvfs(path.parent).f_bavail == 0:
            return "Its disk is full: free some space"
    if path.is_file() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return "Look who owns the file and its folder, and whether the disk is read-only"
    return "Choose a folder on a local disk that can be written"


def real(path: Path) -> Path:
    """Where links lead to, so that processes that use different links share one log. The file need not exist."""
    try:
        return path.resolve(strict=True)  # else Python 3.13 says nothing of a circle
    except (OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) or error.errno == ELOOP:
            raise SettingsError(f"{path}: its links lead in a circle: name the file itself") from error
        return path.resolve()


def folder_elsewhere(environment: Mapping[str, str]) -> Path | None:
    """The folder in which programs of this user keep state between runs; None if the environment names none."""
    if state := environment.get("XDG_STATE_HOME", ""):
        return Path(state, "countersink", "files") if Path(state).is_absolute() else None
    if home := environment.get("HOME", ""):
        return Path(home, ".local", "state", "countersink", "files")
    return None


class DataFile:
    """The file at one path: whether it is the one that was here before, and, once it is open, is still there."""

    def __init__(self, named: Path, elsewhere: Path | None = None) -> None:
        """`elsewhere`: a folder on another volume that remembers the file, if there is one."""
        self.path = real(named)
        self._all = [f"{self.path}{suffix}" for suffix in ("", "-wal", "-shm")]
        self._wal, self._turn = Path(self._all[1]), Path(f"{self.path}-turn")
        self._elsewhere: Path | None = None
        if elsewhere is not None:
            # Several machines may share a home, so the name has the machine's. It has the path that is used, so that a
            # link which leads somewhere else is noticed, too.
            machine = f"{socket.gethostname()}:{named.absolute()}".encode(errors="surrogateescape")
            self._elsewhere = elsewhere / f"{sha256(machine).hexdigest()[:32]}.json"
        self._opened: list[tuple[int, int]] = []
        self._noted: Sighting | None = None
        self._next_note = self._next_check = 0.0

    def recognise(self) -> None:
        """Raise `LostFileError` if another file was here before. Changes nothing."""
        if (flaw := self.flaw()) is not None:
            raise LostFileError(flaw)

    def flaw(self) -> str | None:
        """Why the file is not the one that was here before, and what to do; None if nothing says so."""
        known, locked = [*self._known()], self._turn.exists()  # read before the file, which is made before these
        try:
            there = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            there = None
        except OSError:
            return None  # opening it will tell why
        if there is None or not there.st_size:
            how = "gone" if there is None else "empty"
            if known or (there is None and locked):
                return (
                    f"{self.path} is {how}, and it existed before. Is its volume mounted? Put the file, or a backup,"
                    f" back. {_TRUST}"
                )
            return self._of_log(f"{self.path} is {how}")
        if not known or IN_USE[there.st_dev, there.st_ino]:
            return None
        now = sighting_without_log(self.path)
        if now is None or all(now.id == one.id and now.progress >= one.progress for one in known):
            return None
        what = "is an older copy of" if all(now.id == one.id for one in known) else "is not"
        return (
            f"{self.path} {what} the file that was here before. If you put a backup in its place, remove {self._wal}"
            f" and {self.path}-shm of the earlier file first, if they exist. {_TRUST}"
        )

    def trust(self) -> None:
        """Accept what is there now. Raises `LostFileError` if the log of another file may be beside it."""
        if self.flaw() is None:
            return
        if (left := self._of_log("the log may be of an earlier file")) is not None:
            raise LostFileError(left)
        self._turn.unlink(missing_ok=True)  # safe: no process locks it to write to a file other than the one it opened
        if self._elsewhere is not None:
            self._elsewhere.unlink(missing_ok=True)
        self.recognise()

    def open(self) -> None:
        """Call it when SQLite has opened the file."""
        self._opened = [_identity(file) for file in self._all]
        IN_USE[self._opened[0]] += 1

    def close(self) -> None:
        """Call it when all connections are closed."""
        IN_USE[self._opened[0]] -= 1

    def check(self) -> None:
        """Raise `DamagedError` if the files are not those that were opened. SQLite continues with deleted files: what
        is accepted would be lost with the process, and reads would answer from a file that is no longer the data.
        """
        for file, identity in zip(self._all, self._opened, strict=True):
            try:
                same = _identity(file) == identity
            except OSError:
                same = False
            if not same:
                raise DamagedError(
                    f"{file} was removed or replaced while it was in use: put it back and restart. If it is another"
                    " file, the start says what to do"
                )

    def check_often(self) -> None:
        """The same for reads, most of which take less time than a look at the files."""
        now = time.monotonic()
        if now >= self._next_check:
            self.check()
            self._next_check = now + BETWEEN_CHECKS

    def note(self, db: sqlite3.Connection, log: Log, *, now: bool = False) -> None:
        """Remember how far the file has got without its log, every few seconds or `now`. The writer calls it between
        commits. The log may be moved into the file only after this process has written it once more (`Log.inherit`).
        If others read or write meanwhile, not all of it can be moved, and a later call tries again.
        """
        if log.inherited or (time.monotonic() < self._next_note and not now):
            return
        self._next_note = time.monotonic() + REMEMBER
        with contextlib.suppress(OSError, sqlite3.Error, CountersinkError):  # the next commit reports what is wrong
            sighting = sighting_of(db)
            if sighting == self._noted:
                return
            self.check()
            (busy, logged, moved) = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if not busy and logged == moved:
                self._remember(sighting)
                self._noted = sighting

    def _remember(self, sighting: Sighting) -> None:
        """Skips a place that can't be written."""
        with contextlib.suppress(OSError):
            turn = os.open(self._turn, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(turn, (json.dumps(sighting._asdict()).ljust(_ROOM - 1) + "\n").encode(), 0)
            finally:
                os.close(turn)
        if self._elsewhere is not None:
            with contextlib.suppress(OSError):
                make_folder(self._elsewhere.parent)
                new = self._elsewhere.with_suffix(f".{os.getpid()}")
                make_file(new)
                new.write_text(json.dumps({"file": str(self.path), **sighting._asdict()}) + "\n")
                new.replace(self._elsewhere)

    def _known(self) -> Iterator[Sighting]:
        for place in (self._turn, self._elsewhere):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if place is not None and place.stat().st_size:
                    said = json.loads(place.read_text())
                    yield Sighting(str(said["id"]), int(said["progress"]))

    def _of_log(self, why: str) -> str | None:
        with contextlib.suppress(OSError):
            if self._wal.stat().st_size:
                return (
                    f"{why}, and {self._wal} exists and is not empty. If it belongs to the file that you put here,"
                    f" merge it with `sqlite3 {self.path} 'PRAGMA wal_checkpoint(TRUNCATE)'`. If not, move it away"
                )
        return None


def _identity(file: str) -> tuple[int, int]:
    there = os.stat(file)  # noqa: PTH116 (on every commit)
    return there.st_dev, there.st_ino


def why_unsafe(path: Path, table: str | None = None) -> str | None:
    """Why the file could be reached with another log than the one beside this name, which would lose counts; and what
    to do. None if it could not, or if nobody can tell. `table`: what is mounted.
    """
    try:
        there = path.stat()
    except OSError:
        return None  # opening it says why
    if S_ISREG(there.st_mode) and there.st_nlink > 1:
        return (
            f"{path} has {there.st_nlink} names (hard links), and a process on another name would not see its log:"
            " counts would be lost. Stop all processes on it and remove the other name, which"
            f" `find / -xdev -samefile {path}` shows; keep the one that has a -wal file beside it. Such a link is no"
            " backup: copy with `sqlite3 FILE '.backup COPY'`"
        )
    if any(mount.point == str(path) for mount in mounts_in(mounts() if table is None else table)):
        return (
            f"{path} is mounted as a single file, so its log and its locks would not be kept with it: mount its folder"
            " instead"
        )
    return None


# Who may open it: only its owner. Anyone who can open a file can lock it, and so stop writes.

_OTHERS: Final = 0o077
"""What a mode grants to others than the owner."""
_WRITES: Final = 0o022
_OURS: Final = ("countersink.db", "spool-")
_LOCKS: Final = (".holder", ".new")


def make_folder(folder: Path) -> None:
    """Make the folder and those above it that are missing, whatever the umask says."""
    for one in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        one.mkdir(0o700, exist_ok=True)
        one.chmod(0o700)


def make_file(path: Path) -> None:
    """Make an empty file if there is none. An existing one is not opened, because closing it would drop SQLite's locks.
    SQLite gives the files beside it the same mode.
    """
    with contextlib.suppress(FileExistsError):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.fchmod(file, 0o600)
        os.close(file)


def open_lock(path: Path) -> int:
    """Open a lock file, and make it if it is missing."""
    make_file(path)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def narrow(path: Path) -> None:
    """Take the rights of others from the data file, from what is beside it, and from the folder if it has only our
    files. What was changed is logged in one line.
    """
    folder, changed = path.parent, []
    with contextlib.suppress(OSError):
        if _is_ours(folder, path.name):
            changed += _narrowed(folder)
        elif folder.stat().st_mode & (_WRITES | S_ISVTX) in {0o020, 0o002, 0o022}:
            _log.warning("%s: other users can write to this folder, and so replace the data in it", folder)
    for file in (path, *sorted(folder.glob(f"{escape(path.name)}-*")), *sorted(folder.glob("*.holder"))):
        narrowed = [] if file.is_dir() else _narrowed(file)
        if narrowed and file.name == f"{path.name}-turn":
            _renew(file)
        changed += narrowed
    if changed:
        _log.warning("other users had access to the data; the modes are narrower now: %s", ", ".join(changed))


def _is_ours(folder: Path, name: str) -> bool:
    """Whether nothing but our files is in it, and it is not meant for everybody, as /tmp is."""
    return not folder.stat().st_mode & S_ISVTX and all(
        one.name.startswith((name, *_OURS)) or one.name.endswith(_LOCKS) or S_ISSOCK(one.lstat().st_mode)
        for one in folder.iterdir()
    )


def _narrowed(path: Path) -> list[str]:
    """What was changed, in words: the path and its former mode; or nothing. Links are not followed."""
    with contextlib.suppress(FileNotFoundError):
        whole = path.lstat().st_mode
        if whole & _OTHERS and (S_ISREG(whole) or S_ISDIR(whole)):
            try:
                path.chmod(S_IMODE(whole) & (0o700 if S_ISDIR(whole) else 0o600))
            except OSError as error:
                _log.warning("%s: other users have access to it (mode %04o): %s", path, S_IMODE(whole), error.strerror)
            else:
                return [f"{path} (mode {S_IMODE(whole):04o})"]
    return []


def _renew(lock: Path) -> None:
    """Replace a lock file by a copy of the same owner: somebody who opened it before may hold its lock for ever."""
    there = lock.stat()
    number, new = mkstemp(prefix=f"{lock.name}.", dir=lock.parent)  # nobody can have put a link there
    with os.fdopen(number, "wb") as out:
        out.write(lock.read_bytes())
        os.fchown(number, there.st_uid, there.st_gid)  # root may look at the data of another user
    Path(new).replace(lock)

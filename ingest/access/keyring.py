"""The keys that are valid now: reads the keys file again when it changes, and finds the key of a request."""

import asyncio
import logging
import os
from collections import OrderedDict
from errno import ELOOP
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISVTX, S_IWGRP, S_IWOTH
from typing import Final

from ingest.access.keys import Key, KeysFile, find, parse, wrong
from ingest.access.rates import MOST_NEW, Bucket, NewCounters, NewQuota, Public, burst_of, client_rate_of
from shared.model.errors import SettingsError
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

MOST_LINKS: Final = 40
LOOK: Final = 0.5
"""Seconds between two looks at the file."""
MOST_CLIENTS: Final = 10_000
"""Clients of publishable keys whose rates are remembered. One that is forgotten may send its burst again."""


class KeyRing:
    """The keys of a file. If the file can't be read any more, the keys that were read before stay valid."""

    def __init__(self, file: Path, clock: Clock) -> None:
        """Raises `SettingsError` if the file can't be read or is wrong."""
        self._file = file
        self._clock = clock
        self._seen: bytes | str
        """What the file held at the last look, or why it could not be read."""
        self._keys: dict[str, Key] = {}
        self._buckets: dict[str, Bucket] = {}
        self._quotas: dict[str, NewCounters] = {}
        """By publishable key."""
        self._clients: OrderedDict[tuple[str, str], Bucket] = OrderedDict()
        """By publishable key and client."""
        self.origins: frozenset[str] = frozenset()
        """Of all publishable keys."""
        self.secret = ""
        content = self._seen = content_of(self._file)
        self._take(self._parsed(content))

    def find(self, text: str) -> Key | None:
        """The key with this text, if it is one of ours."""
        return find(self._keys, text)

    def renewed(self, key: Key) -> Key | None:
        """What the file says of the key now; None if it has ended."""
        found = self._keys.get(key.id)
        is_there = found is not None and found.sha256 == key.sha256 and self._clock.now() < found.ends
        return found if is_there else None

    def bucket(self, key: Key) -> Bucket | None:
        """What the key may send now; None if its rate is not limited. All callers with the key share it."""
        return self._buckets.get(key.id)

    def public(self, key: Key, client: str) -> Public | None:
        """What this client may send with the key, if it is a publishable one."""
        quota = self._quotas.get(key.id)
        if quota is None:
            return None
        burst = burst_of(key.rate)
        bucket = self._clients.pop((key.id, client), None)
        if bucket is None:
            rate = client_rate_of(key.rate) if key.client_rate is None else key.client_rate
            whose = f"this client ({client}) sends more than what the key {key.id} allows each,"
            bucket = Bucket(whose, rate, self._clock, burst)
            if len(self._clients) >= MOST_CLIENTS:
                self._clients.popitem(last=False)
        self._clients[key.id, client] = bucket
        return Public(bucket, int(burst), key.deltas, NewQuota(quota, client))

    async def look(self) -> bool:
        """Read the file again. Returns whether the keys have changed."""
        try:
            content: bytes | str = await asyncio.to_thread(content_of, self._file)
        except SettingsError as error:
            content = str(error)
        if content == self._seen:
            return False
        self._seen = content
        try:
            if isinstance(content, str):
                raise SettingsError(content)
            self._take(await asyncio.to_thread(self._parsed, content))
        except SettingsError as error:
            _log.error("%s; the keys that were read before stay valid", error)
            return False
        _log.warning("read %d keys from %s", len(self._keys), self._file)
        return True

    def _parsed(self, content: bytes) -> KeysFile:
        try:
            return parse(content)
        except SettingsError as error:
            raise wrong(self._file, error) from None

    def _take(self, file: KeysFile) -> None:
        self._keys = {key.id: key for key in file.keys}
        self.secret = file.signs()
        self.origins = frozenset(origin for key in self._keys.values() for origin in key.origins)
        before, self._buckets = self._buckets, {}
        for key in self._keys.values():
            if key.rate is not None:
                bucket = before.get(key.id)
                if bucket is None or bucket.rate != key.rate:
                    bucket = Bucket(f"the key {key.id} sends more than its", key.rate, self._clock)
                self._buckets[key.id] = bucket
        quotas, self._quotas = self._quotas, {}
        for key in self._keys.values():
            if key.publishable:
                most = MOST_NEW if key.max_new is None else key.max_new
                quota = quotas.get(key.id)
                self._quotas[key.id] = quota if quota and quota.most == most else NewCounters(key.id, most, self._clock)
        self._clients.clear()


def content_of(file: Path) -> bytes:
    """What the keys file holds. Raises `SettingsError` if it can't be read, or if others could write keys into it."""
    place = place_of(file)
    try:
        if place.exists() and not place.is_file():  # to open a FIFO would wait for whoever writes to it
            raise SettingsError(f"the keys file {file} is not a file: check COUNTERSINK_KEYS_FILE")
        return place.read_bytes()
    except OSError as error:
        raise _unreadable(file, error) from error


def place_of(file: Path) -> Path:
    """Where the keys file is, or would be, behind all links. Raises `SettingsError` if other users could put their own
    there: nobody but root and this user may own, or write to, the file and each folder and link on the way.
    """
    folder, rest = Path("/"), [*(Path.cwd() / file).parts[1:]]
    links = 0
    try:
        _check(file, folder)
        while rest:
            if (name := rest.pop(0)) == "..":
                folder = folder.parent
                continue
            entry = folder / name
            if not rest and not os.path.lexists(entry):
                return entry
            _check(file, entry)
            if not entry.is_symlink():
                folder = entry
                continue
            target = entry.readlink()
            links += 1
            if links > MOST_LINKS:
                raise OSError(ELOOP, os.strerror(ELOOP))
            if target.is_absolute():
                folder = Path("/")
            rest[:0] = target.parts[target.is_absolute() :]
    except OSError as error:
        raise _unreadable(file, error) from error
    return folder


def is_ours(status: os.stat_result) -> bool:
    """Whether nobody but root and this user owns it."""
    return status.st_uid in {0, os.geteuid()}


def _check(file: Path, entry: Path) -> None:
    """Raise if other users could change this part of the path of the file. On a read-only mount its owner and group are
    mostly those of another machine, but it may be read-only for this process alone.
    """
    status = os.lstat(entry)
    is_link = S_ISLNK(status.st_mode)
    fixed = os.statvfs(entry.parent if is_link else entry).f_flag & os.ST_RDONLY
    if not fixed and not is_ours(status):
        raise SettingsError(
            f"the user {status.st_uid} can change the keys file {file}, because {entry} is theirs: chown it to root or"
            f" to the user of this process ({os.geteuid()}), run this as that user, or mount it read-only"
        )
    if is_link or not status.st_mode & (S_IWOTH if fixed else S_IWGRP | S_IWOTH):
        return
    if not S_ISDIR(status.st_mode):
        raise SettingsError(f"other users can write to the keys file {file}: forbid it with chmod go-w {entry}")
    if not status.st_mode & S_ISVTX:
        raise SettingsError(
            f"other users can replace the keys file {file}: forbid it with chmod go-w {entry}, or move the file"
        )


def _unreadable(file: Path, error: OSError) -> SettingsError:
    return SettingsError(
        f"the keys file {file} can't be read ({error.strerror}): check COUNTERSINK_KEYS_FILE, or make a key with"
        " countersink keys new"
    )

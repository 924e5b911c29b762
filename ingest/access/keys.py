"""The keys: how the keys file says them, which are valid now, and which one a request has."""

import asyncio
import hmac
import logging
import math
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from errno import ELOOP
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISVTX, S_IWGRP, S_IWOTH
from typing import Any, Final, NamedTuple, Self

import orjson

from ingest.access.rates import NEW_AN_HOUR, Bucket, NewCounters, NewQuota, Public, burst_of, client_rate_of
from ingest.parsing.parse import ObjectShape, flaw_of_flag, must_be, whole_from
from shared.config.lists import flaw_of_origin
from shared.model.errors import SettingsError, amount
from shared.model.jobs import flaw_of_job, flaw_of_prefix
from shared.model.words import ALL_DELTAS, MAX_DELTA, Deltas, Lately
from shared.runtime.clock import Clock
from shared.wire import strict_json
from shared.wire.strict_json import Flaw, flaw_of_fields, or_null

# The scopes of keys, and which of them requests need.


class Scope(NamedTuple):
    """What a key may do. What the keys file may say, what `countersink keys` offers, and what the door asks of requests
    follow from here. A publishable key may have the scopes that count or read.
    """

    allows: str
    """What errors and helps say: a key may only …"""
    counts: bool = False
    """Whether requests that need it count. Then they spend the rate of their key, connections are kept for them, pages
    of COUNTERSINK_ORIGINS may send them, and a link of another site may not.
    """
    reads: bool = False
    """Whether requests that need it read counters. Then a publishable key may read this many a second, and browsers may
    keep what it reads.
    """


SCOPES: Final = {
    "write": Scope("count", counts=True),
    "read": Scope("read counters", reads=True),
    "admin": Scope("set, reset, delete, shards, jobs and dead letters"),
}


class Need(frozenset[str]):
    """The scopes that allow a request: its key needs one of them. It counts, or reads, if all of them do."""

    counts: bool
    reads: bool

    def __new__(cls, *names: str) -> Self:
        need = super().__new__(cls, names)
        need.counts = bool(names) and all(SCOPES[name].counts for name in names)
        need.reads = bool(names) and all(SCOPES[name].reads for name in names)
        return need


OPEN: Final = Need()
"""No key is needed."""
ANY: Final = Need(*SCOPES)
TO_READ: Final = Need("read")
TO_COUNT: Final = Need("write")
TO_ADMINISTER: Final = Need("admin")
"""What a request needs that changes or exports counters other than by counting."""
TO_FOLLOW: Final = Need("read", "write")
"""If you may count, you may also ask what became of it."""

SECRET_KEY: Final = "csk"  # noqa: S105 (how one begins)
PUBLISHABLE_KEY: Final = "cpk"
"""How the text of a key begins. It tells people, and scanners of source code, what they have found."""
MAX_DELTA_OF_PAGES: Final = 1
"""The largest delta of a publishable key, unless it says another one."""
MOST_NEW: Final = 1_000_000
"""The most new counters an hour that a key may say. Each takes a few bytes for an hour."""
_SECRET_BYTES: Final = 32
SHORTEST_SECRET: Final = 32
_TEXT: Final = re.compile(r"(csk|cpk)_([A-Za-z0-9][A-Za-z0-9._-]{0,99})_([0-9a-f]{64})")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_ACCOUNT: Final = re.compile(r"[a-z0-9.:-]+@([a-z0-9-]+\.)*gserviceaccount\.com")
_NOBODY: Final = "0" * 64
_KNOWN_SECRET: Final = sha256(b"").hexdigest()
"""Earlier builds wrote this one into a file that had no keys and no secret."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """An entry of the keys file. It does not hold the secret, only its hash."""

    id: str
    sha256: str = ""
    """Empty if it stands for a service account."""
    google: str = ""
    """The Google service account whose ID tokens are this key, instead of a secret."""
    scopes: tuple[str, ...]
    prefixes: tuple[str, ...] = ()
    """It may use the counters whose names begin with one of these; without prefixes, all counters."""
    rate: float | None = None
    """Increments a second."""
    owner: str = ""
    """Secret keys of one owner share ids, jobs and receipts. Those without an owner share what requests without a key
    use.
    """
    expires: str | None = None
    note: str | None = None
    publishable: bool = False
    """It appears in web pages, where anybody can read it: it may only count and read counters, as its scopes say, under
    its prefixes, from its origins.
    """
    origins: tuple[str, ...] = ()
    client_rate: float | None = None
    """Increments a second that each client may send with a publishable key."""
    max_delta: int | None = None
    """The largest delta of a publishable key. The least one is 1."""
    max_new: int | None = None
    """New counters that a publishable key may make in an hour."""

    def has(self, name: str) -> bool:
        """Whether it may use this counter."""
        return not self.prefixes or name.startswith(self.prefixes)

    def has_all(self, prefix: str) -> bool:
        """Whether it may use all counters under the prefix."""
        return not self.prefixes or prefix.startswith(self.prefixes)

    @cached_property
    def may(self) -> frozenset[str]:
        return frozenset(self.scopes)

    @cached_property
    def space(self) -> str:
        """The owner whose ids, jobs and receipts it uses. A publishable key has its own, whatever its owner: anybody
        can read it, guess the id of an increment, and send that id first. No owner may have a space in its name.
        """
        return f"publishable {self.id}" if self.publishable else self.owner

    @cached_property
    def deltas(self) -> Deltas:
        """The deltas that it may send. None is 0, which would void what others send later under the same id."""
        if not self.publishable:
            return ALL_DELTAS
        return Deltas(1, MAX_DELTA_OF_PAGES if self.max_delta is None else self.max_delta)

    @cached_property
    def ends(self) -> float:
        return math.inf if self.expires is None else datetime.fromisoformat(self.expires).timestamp()


def find(keys: Mapping[str, Key], text: str) -> Key | None:
    """The key with this text, if it is one of these keys, by id. It takes the same time wherever the texts differ."""
    found = _TEXT.fullmatch(text)
    kind, id_, secret = found.groups() if found is not None else ("", "", "")
    key = keys.get(id_)
    is_good = hmac.compare_digest(_hash_of(secret), _NOBODY if key is None else key.sha256)
    if key is None or not is_good or kind != (PUBLISHABLE_KEY if key.publishable else SECRET_KEY):
        return None
    return key


def make(**entry: Any) -> tuple[Key, str]:
    """A new key, and its text, which is shown once; none if it is for an account of Google's. Raises `SettingsError` if
    a field is wrong.
    """
    if "google" in entry:
        return _key_of(entry), ""
    secret = secrets.token_hex(_SECRET_BYTES)
    key = _key_of({**entry, "sha256": _hash_of(secret)})
    return key, f"{PUBLISHABLE_KEY if key.publishable else SECRET_KEY}_{key.id}_{secret}"


class KeysFile(NamedTuple):
    keys: Sequence[Key] = ()
    secret: str = ""
    """What receipts are signed with, so that nobody can make one for what another owner has sent. Empty if the file has
    none, or one that is short or known.
    """

    def signs(self) -> str:
        """The secret, or one made from the keys, whose hashes nobody knows all: then receipts are lost when a key
        changes.
        """
        return self.secret or _hash_of("".join(sorted(key.sha256 for key in self.keys)))


def parse(text: bytes) -> KeysFile:
    """What is in a file. Raises `SettingsError` that says what is wrong with it."""
    try:
        data = strict_json.loads(text)
    except strict_json.JsonError as error:
        raise SettingsError(f"it is {error}") from None
    if type(data) is not dict or not {"keys"} <= data.keys() <= {"keys", "secret"} or type(data["keys"]) is not list:
        raise SettingsError('it must be {"keys": [...], "secret": "..."}')
    secret = data.get("secret", "")
    if type(secret) is not str:
        raise SettingsError("'secret' must be a string")
    keys = [_key_of(entry) for entry in data["keys"]]
    for name in ("id", "google"):
        if twice := [one for one, times in Counter(getattr(key, name) for key in keys).items() if one and times > 1]:
            raise SettingsError(f"two keys have the {name} {twice[0]!r}")
    secret = "" if len(secret) < SHORTEST_SECRET or secret == _KNOWN_SECRET else secret
    if keys and not secret and not any(key.sha256 for key in keys):
        raise SettingsError(f"it needs a random 'secret' of {SHORTEST_SECRET} characters, as no key in it has one")
    return KeysFile(keys, secret)


def keys_in(content: bytes, file: Path) -> KeysFile:
    """`parse`, with an error that says which file it is, and what to do."""
    try:
        return parse(content)
    except SettingsError as error:
        raise SettingsError(
            f"the keys file {file} is wrong: {error}. Correct it, or put an earlier copy in its place; countersink keys"
            " list says whether it can be read"
        ) from None


def written(keys: Sequence[Key], secret: str = "") -> bytes:
    """The text of a file with these keys, without fields that say nothing. It gets a secret if there is none."""
    entries = [{name: value for name, value in asdict(key).items() if value or type(value) is int} for key in keys]
    content = {"keys": entries, "secret": secret or secrets.token_hex(_SECRET_BYTES)}
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _hash_of(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _key_of(entry: object) -> Key:
    if type(entry) is not dict:
        raise SettingsError("each key must be an object")
    name = f"the key {entry.get('id')!r:.120}"
    if found := flaw_of_fields(entry, _SHAPE.fields, _SHAPE.required):
        raise SettingsError(f"{name}: {found[1]}")
    fields: dict[str, Any] = {name: tuple(value) if type(value) is list else value for name, value in entry.items()}
    key = Key(**fields)
    if bool(key.sha256) == bool(key.google):
        raise SettingsError(f"{name}: a key needs either 'sha256' or 'google'")
    if key.google and key.publishable:
        raise SettingsError(f"{name}: a publishable key has a secret, which all pages show: it can't be for 'google'")
    if not key.publishable:
        for field in ("origins", "client_rate", "max_delta", "max_new"):
            if getattr(key, field) not in {(), None}:
                raise SettingsError(f"{name}: only publishable keys have '{field}'")
    elif not {*key.scopes} <= {*for_pages()}:
        raise SettingsError(f"{name}: a publishable key may have no scopes but {', '.join(for_pages())}")
    elif not key.prefixes or not key.origins:
        lacks = "origins (--origin)" if key.prefixes else "prefixes (--prefix)"
        raise SettingsError(f"{name}: a publishable key needs {lacks}")
    return key


def for_pages() -> list[str]:
    """The scopes that a publishable key may have."""
    return [name for name, scope in SCOPES.items() if scope.counts or scope.reads]


def _each(flaw_of: Flaw) -> Callable[[Any], str | None]:
    """Allows a list of what `flaw_of` allows."""

    def flaw(value: Any) -> str | None:
        if type(value) is not list:
            return "must be a list"
        return next((f"has {item!r:.120}, which {said}" for item in value if (said := flaw_of(item))), None)

    return flaw


def _flaw_of_scopes(value: Any) -> str | None:
    if type(value) is not list or not value or not {*map(str, value)} <= {*SCOPES} or len({*value}) < len(value):
        return f"must be some of {', '.join(SCOPES)}, each once; is {value!r:.120}"
    return None


_RATE: Final = must_be(
    "a number of increments a second, above 0", lambda value: type(value) in {int, float} and 0 < value < math.inf
)


def _flaw_of_expires(value: Any) -> str | None:
    try:
        aware = type(value) is str and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        aware = False
    return None if aware else "must be a date and time with an offset, such as 2027-01-31T00:00:00Z"


_SHAPE: Final = ObjectShape(
    "{…}",
    {
        "id": flaw_of_job,
        "sha256": must_be(
            "64 hexadecimal digits, the SHA-256", lambda value: type(value) is str and _HASH.fullmatch(value)
        ),
        "google": must_be(  # the addresses of people's accounts can change hands
            "the address of a service account, such as NAME@PROJECT.iam.gserviceaccount.com",
            lambda value: type(value) is str and _ACCOUNT.fullmatch(value),
        ),
        "scopes": _flaw_of_scopes,
        "prefixes": _each(lambda value: "must not be empty" if value == "" else flaw_of_prefix(value)),
        "rate": or_null(_RATE),
        "owner": lambda value: None if value == "" else flaw_of_job(value),
        "expires": or_null(_flaw_of_expires),
        "note": or_null(must_be("a string", lambda value: type(value) is str)),
        "publishable": flaw_of_flag,
        "origins": _each(flaw_of_origin),
        "client_rate": or_null(_RATE),
        "max_delta": or_null(whole_from(1, MAX_DELTA)),
        "max_new": or_null(whole_from(0, MOST_NEW)),
    },
    required=("id", "scopes"),
)


# The keys that are valid now: reads the keys file again when it changes, and finds the key of a request.


_log = logging.getLogger(__name__)

MOST_SYMLINKS: Final = 40
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
        self.accounts: dict[str, Key] = {}
        self._buckets: dict[str, Bucket] = {}
        self._readers: dict[str, Bucket] = {}
        """The buckets for counters that are read with publishable keys."""
        self._quotas: dict[str, NewCounters] = {}
        self._clients: Lately[tuple[str, str], tuple[Bucket, Bucket]] = Lately(MOST_CLIENTS)
        """What one client may still send and read, by publishable key and client."""
        self.origins: dict[str, frozenset[str]] = {}
        """The origins of all publishable keys, by their scopes."""
        self.secret = ""
        content = self._seen = content_of(self._file)
        self._take(keys_in(content, file))

    def find(self, text: str) -> Key | None:
        return find(self._keys, text)

    def renewed(self, key: Key) -> Key | None:
        """What the file says of the key now; None if it has ended."""
        found = self._keys.get(key.id)
        if found is None or (found.sha256, found.google) != (key.sha256, key.google):
            return None
        return found if self._clock.now() < found.ends else None

    def bucket(self, key: Key) -> Bucket | None:
        """What the key may send now; None if its rate is not limited. All callers with the key share it."""
        return self._buckets.get(key.id)

    def public(self, key: Key, client: str) -> Public | None:
        """What this client may send with the key, if it is a publishable one."""
        quota = self._quotas.get(key.id)
        if quota is None:
            return None
        burst = burst_of(key.rate)
        buckets = self._clients.get((key.id, client))
        if buckets is None:
            rate = client_rate_of(key.rate) if key.client_rate is None else key.client_rate
            more = f"more than the key {key.id} allows each client,"
            sends = Bucket(f"this client ({client}) sends {more}", rate, self._clock, burst)
            buckets = sends, Bucket(f"this client ({client}) reads {more}", rate, self._clock, burst, "counter")
        self._clients[key.id, client] = buckets
        of_all = self._readers.get(key.id)
        reads = (buckets[1],) if of_all is None else (buckets[1], of_all)
        return Public(buckets[0], int(burst), key.deltas, NewQuota(quota, client), reads)

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
            self._take(await asyncio.to_thread(keys_in, content, self._file))
        except SettingsError as error:
            _log.error("%s; the keys that were read before stay valid", error)
            return False
        _log.info("read %s from %s", amount(len(self._keys), "key"), self._file)
        return True

    def _take(self, file: KeysFile) -> None:
        self._keys = {key.id: key for key in file.keys}
        self.accounts = {key.google: key for key in file.keys if key.google}
        self.secret = file.signs()
        self.origins = {
            scope: frozenset(origin for key in self._keys.values() if scope in key.may for origin in key.origins)
            for scope in SCOPES
        }
        sending, reading, quotas = self._buckets, self._readers, self._quotas
        self._buckets, self._readers, self._quotas = {}, {}, {}
        for key in self._keys.values():
            if key.rate is not None:
                self._buckets[key.id] = self._renewed(sending, key, "sends", "increment")
                if key.publishable:
                    self._readers[key.id] = self._renewed(reading, key, "reads", "counter")
            if key.publishable:
                most = NEW_AN_HOUR if key.max_new is None else key.max_new
                old = quotas.get(key.id)
                self._quotas[key.id] = old if old and old.limit == most else NewCounters(key.id, most, self._clock)
        self._clients.clear()

    def _renewed(self, known: Mapping[str, Bucket], key: Key, does: str, what: str) -> Bucket:
        """The bucket of all who use the key. If its rate has not changed, it holds what it held."""
        assert key.rate is not None  # noqa: S101
        bucket = known.get(key.id)
        if bucket is not None and bucket.rate == key.rate:
            return bucket
        return Bucket(f"the key {key.id} {does} more than its", key.rate, self._clock, what=what)


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
            if links > MOST_SYMLINKS:
                raise OSError(ELOOP, os.strerror(ELOOP))
            if target.is_absolute():
                folder = Path("/")
            rest[:0] = target.parts[target.is_absolute() :]
    except FileNotFoundError as error:
        raise SettingsError(
            f"the folder {error.filename} of the keys file {file} does not exist: make it first, or check"
            " COUNTERSINK_KEYS_FILE"
        ) from error
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

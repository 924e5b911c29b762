"""Reads the URLs in the settings, and knows the variables that Kubernetes sets for services."""

import contextlib
import re
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from shared.model.errors import SettingsError

_SQLITE: Final = "sqlite:///FILE (sqlite:////FILE with an absolute path)"
_PUBSUB: Final = (
    "pubsub://PROJECT/TOPIC?subscription=SUBSCRIPTION, where TOPIC and SUBSCRIPTION begin with a letter and have 3 to"
    " 255 letters, digits and -_.~+%"
)
_TOPIC: Final = "pubsub://PROJECT/TOPIC"
_DATASTORE: Final = "datastore://PROJECT[/DATABASE][?namespace=NAMESPACE]"
_FIRESTORE: Final = "firestore://PROJECT[/DATABASE]/COLLECTION"
_REDIS: Final = "memory:// or redis://HOST[:PORT][/NUMBER] (also rediss, valkey, valkeys, or unix:///SOCKET)"
_REDISES: Final = {"redis", "rediss", "valkey", "valkeys"}
_NUMBER: Final = re.compile(r"/?[0-9]*")
_RESOURCE: Final = re.compile(r"[A-Za-z][\w.~+%-]{2,254}", re.ASCII)


class Pubsub(NamedTuple):
    project: str
    topic: str
    subscription: str


class Datastore(NamedTuple):
    project: str
    database: str
    namespace: str


class Firestore(NamedTuple):
    project: str
    database: str
    collection: str
    """The path of a collection: `pages`, or `users/ann/pages`."""


def scheme_of(url: str) -> str:
    return url.partition("://")[0]


def sqlite_file(variable: str, url: str) -> Path:
    parts = _split(variable, url, _SQLITE)
    path = unquote(parts.path)[1:]
    if parts.scheme != "sqlite" or parts.netloc or not path or "\0" in path or parts.query or not _is_file(path):
        raise _wrong(variable, url, _SQLITE)
    with contextlib.suppress(OSError):  # whoever opens the file tells why
        if Path(path).is_dir():
            file = f"sqlite:///{parts.path[1:].rstrip('/')}/countersink.db"
            raise SettingsError(f"{variable}={url!r}: this is a folder. Name a file in it, such as {file}")
    return Path(path)


def _is_file(path: str) -> bool:
    """Not what other programs take for a file: memory, or a folder that only a shell knows."""
    return path != ":memory:" and not path.startswith(("~", "$"))


def pubsub(variable: str, url: str) -> Pubsub:
    parts = _split(variable, url, _PUBSUB)
    options = _options(variable, url, parts, {"subscription"}, _PUBSUB)
    found = Pubsub(parts.netloc, parts.path[1:], options.get("subscription", ""))
    if not found.project or not _RESOURCE.fullmatch(found.topic) or not _RESOURCE.fullmatch(found.subscription):
        raise _wrong(variable, url, _PUBSUB)
    return found


def topic(variable: str, url: str) -> Pubsub:
    parts = _split(variable, url, _TOPIC)
    found = Pubsub(parts.netloc, parts.path[1:], "")
    if not found.project or not _RESOURCE.fullmatch(found.topic) or parts.query or parts.fragment:
        raise _wrong(variable, url, _TOPIC)
    return found


def datastore(variable: str, url: str) -> Datastore:
    parts = _split(variable, url, _DATASTORE)
    options = _options(variable, url, parts, {"namespace"}, _DATASTORE)
    database = parts.path[1:]
    if parts.scheme != "datastore" or not parts.netloc or "/" in database:
        raise _wrong(variable, url, _DATASTORE)
    return Datastore(parts.netloc, "" if database == "(default)" else database, options.get("namespace", ""))


def firestore(variable: str, url: str) -> Firestore:
    """The last segments are the path of a collection, so their number is odd. With a database there is one more."""
    parts = _split(variable, url, _FIRESTORE)
    segments = unquote(parts.path)[1:].split("/")
    if parts.scheme != "firestore" or not parts.netloc or parts.query or parts.fragment or not all(segments):
        raise _wrong(variable, url, _FIRESTORE)
    database = segments.pop(0) if len(segments) % 2 == 0 else "(default)"
    return Firestore(parts.netloc, database, "/".join(segments))


def redis(variable: str, url: str) -> None:
    """Refuse a URL that a Redis client would not understand, or would silently take for database 0."""
    try:
        parts, port = urlsplit(url), urlsplit(url).port
    except ValueError:
        raise _wrong(variable, shown(url), _REDIS) from None
    if parts.scheme == "unix" and parts.path:
        return
    if parts.scheme not in _REDISES or not parts.hostname or port == 0 or not _NUMBER.fullmatch(parts.path):
        raise _wrong(variable, shown(url), _REDIS)


def shown(url: str) -> str:
    """The URL without a password, wherever that stands."""
    scheme, mark, rest = url.partition("://")
    return scheme + mark + rest.partition("?")[0].rpartition("@")[2]


def _split(variable: str, url: str, form: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise _wrong(variable, url, form) from None


def _options(variable: str, url: str, parts: SplitResult, known: set[str], form: str) -> dict[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.fragment or not options.keys() <= known:
        raise _wrong(variable, url, form)
    return options


def _wrong(variable: str, url: str, form: str) -> SettingsError:
    return SettingsError(f"{variable}={url!r}: must be {form}")


# Knows the variables that Kubernetes sets in each Pod for services whose names begin with `countersink`. Pure.


_SERVICE: Final = r"COUNTERSINK(?:_[A-Z0-9]+)*?"
_NAME: Final = re.compile(
    rf"{_SERVICE}_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
_PORT: Final = re.compile(rf"{_SERVICE}_PORT")
_URL: Final = re.compile(r"(?:tcp|udp|sctp)://.*")


def is_service_link(name: str, value: str) -> bool:
    """Whether this variable is one of those. COUNTERSINK_PORT is one only if it is a URL, and no plain number."""
    return bool(_NAME.fullmatch(name) or (_PORT.fullmatch(name) and _URL.fullmatch(value)))

"""Reads settings that are lists, with commas between the items: networks, origins, hosts, prefixes, limits. Pure."""

import re
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, NamedTuple, TypeVar

from shared.model.words import MAX_NAME_BYTES, flaw_of_size

T = TypeVar("T")

Network = IPv4Network | IPv6Network

MOST_COUNTERS: Final = 10**12
"""The most counters that a limit can allow."""


class NameLimit(NamedTuple):
    """There may be so many counters whose names begin with the prefix."""

    prefix: str
    most: int


_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:]+")


def networks(text: str) -> tuple[Network, ...]:
    return _each(text, _network)


def origins(text: str) -> tuple[str, ...]:
    return _each(text, _origin)


def hosts(text: str) -> tuple[str, ...]:
    """Names or addresses, in lower case, without ports."""
    return _each(text, _host)


def name_limits(text: str) -> tuple[NameLimit, ...]:
    """Limits such as `page:=100000,=1000000`. A prefix may hold `=`, but no comma. The empty one is for all names."""
    limits = _each(text, _name_limit)
    if len({limit.prefix for limit in limits}) < len(limits):
        raise ValueError("a prefix is there twice")
    return limits


def prefixes(text: str) -> tuple[str, ...]:
    """What names begin with. A prefix may hold no comma."""
    return _each(text, _prefix)


def flaw_of_origin(value: object) -> str | None:
    """Why this is no origin as browsers send it; None if it is one."""
    if type(value) is str and _ORIGIN.fullmatch(value):
        return None
    return "must be an origin such as https://www.example.com, in lower case and without a path"


def _each(text: str, read: Callable[[str], T]) -> tuple[T, ...]:
    """Raises `ValueError` that names the item that is wrong."""
    return tuple(read(word.strip()) for word in text.split(",")) if text else ()


def _network(word: str) -> Network:
    try:
        return ip_network(word, strict=False)
    except ValueError:
        raise ValueError(f"{word!r} must be a network such as 10.0.0.0/8, or an address") from None


def _origin(word: str) -> str:
    if flaw := flaw_of_origin(word):
        raise ValueError(f"{word!r} {flaw}")
    return word


def _name_limit(word: str) -> NameLimit:
    prefix, equals, digits = word.rpartition("=")
    if not (equals and digits.isascii() and digits.isdigit() and len(digits) < 20 and int(digits) <= MOST_COUNTERS):  # noqa: PLR2004 (more digits are too many)
        raise ValueError(
            f"{word!r} must be a prefix, '=' and a whole number from 0 to {MOST_COUNTERS}, as in page:=1000"
        )
    if flaw := flaw_of_size(prefix, MAX_NAME_BYTES):
        raise ValueError(f"the prefix of {word!r} {flaw}")
    return NameLimit(prefix, int(digits))


def _prefix(word: str) -> str:
    if not word:
        raise ValueError("a prefix must not be empty")
    if flaw := flaw_of_size(word, MAX_NAME_BYTES):
        raise ValueError(f"{word!r} {flaw}")
    return word


def _host(word: str) -> str:
    name = word.lower().removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(name):
        raise ValueError(f"{word!r} must be the name or the address of a host, without a port")
    return name

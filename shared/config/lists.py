"""Reads settings that are lists, with commas between the items: networks, origins, and names of hosts. Pure."""

import re
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, TypeVar

T = TypeVar("T")

Network = IPv4Network | IPv6Network

_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:]+")


def networks(text: str) -> tuple[Network, ...]:
    return _each(text, _network)


def origins(text: str) -> tuple[str, ...]:
    return _each(text, _origin)


def hosts(text: str) -> tuple[str, ...]:
    """Names or addresses, in lower case, without ports."""
    return _each(text, _host)


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


def _host(word: str) -> str:
    name = word.lower().removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(name):
        raise ValueError(f"{word!r} must be the name or the address of a host, without a port")
    return name

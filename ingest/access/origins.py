"""Reads from the headers of a request which web page made a browser send it. Pure.

A page of any site can make a browser send requests to a service on the same machine, and a site can point its own name
to 127.0.0.1. Browsers say where a request comes from, in Origin, Sec-Fetch-Site and Host, and pages can't change that.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

_OWN: Final = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site of requests that no other site has caused."""


_HOST: Final = re.compile(r"(?:([a-z0-9._-]+)|\[([0-9a-f:.]+)\])(?::[0-9]{1,5})?")


def host_without_port(host: str) -> str:
    """The name or address in a header Host, in lower case; empty if it is not written as one."""
    found = _HOST.fullmatch(host.lower())
    return "" if found is None else found[1] or found[2]


def is_loopback(name: str) -> bool:
    """Whether a name or an address always means this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def is_address(name: str) -> bool:
    """Whether it is an address and no name."""
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether the page of another origin made a browser send this request."""
    origin = headers.get("Origin")
    if origin is not None:
        return not _is_own(origin, headers.get("Host", ""))
    return headers.get("Sec-Fetch-Site", "none") not in _OWN


def _is_own(origin: str, host: str) -> bool:
    """A proxy may have ended TLS, so the schemes are not compared."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower()

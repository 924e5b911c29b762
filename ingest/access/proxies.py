"""Tells which client a request comes from if proxies stand before the service. Pure."""

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from typing import Final

from shared.config.lists import Network

LONGEST_CHAIN: Final = 50
"""Addresses in X-Forwarded-For that are looked at."""


def client_of(peer: str, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """The address of the client: the last one in X-Forwarded-For that is not a trusted proxy's.

    A client can write what it likes into the header, but each proxy appends the address that it has seen. So addresses
    are believed from the right, as long as a trusted proxy has written them. `peer` is empty behind a Unix socket,
    which only programs can reach that may open it: they are trusted if anybody is.
    """
    client = peer
    if not trusts(peer, trusted):
        return client
    chain = [word.strip() for line in forwarded for word in line.split(",")]
    for word in reversed(chain[-LONGEST_CHAIN:]):
        address = _address_in(word)
        if address is None:
            break
        client = address
        if not _is_in(address, trusted):
            break
    return client


def trusts(peer: str, trusted: Sequence[Network]) -> bool:
    """Whether what this peer says in X-Forwarded-For is believed."""
    return bool(trusted) and (peer == "" or _is_in(peer, trusted))


def _address_in(word: str) -> str | None:
    """The address in a word of the header, which may have a port; None if it is no address."""
    if word.startswith("["):
        word = word[1:].partition("]")[0]
    elif word.count(":") == 1:
        word = word.partition(":")[0]
    try:
        return str(ip_address(word))
    except ValueError:
        return None


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)

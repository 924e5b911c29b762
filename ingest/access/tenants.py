"""Who sends, for those who share what there is among all: the one place that says what a tenant is."""

import asyncio
from ipaddress import IPv6Address
from typing import Final

LOCAL: Final = "local"
"""Whoever has no address."""
_NETWORK: Final = 64
"""Bits of an IPv6 address that tell clients apart: the others are theirs to choose."""


def tenant_of(transport: asyncio.BaseTransport | None) -> str:
    """The address of the peer, without its port."""
    peer = transport.get_extra_info("peername") if transport is not None else None
    if not isinstance(peer, tuple) or not peer:
        return LOCAL
    host = str(peer[0])
    if ":" not in host:
        return host
    address = IPv6Address(host)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    network = int(address) >> (128 - _NETWORK) << (128 - _NETWORK)
    return f"{IPv6Address(network)}/{_NETWORK}"

"""Tells the tenant of a request: clients that have one share of what is limited."""

import asyncio
from ipaddress import IPv6Address
from typing import Final

LOCAL: Final = "local"
"""The tenant of a peer without an address, such as one behind a Unix socket."""
_NETWORK: Final = 64
"""Bits of an IPv6 address that tell clients apart. A client can choose the other bits as it likes."""


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The address of the other end of a connection, without its port; empty if it has none."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


def tenant_of(peer: str) -> str:
    """The tenant at an address: the address itself, or its network for IPv6."""
    if not peer:
        return LOCAL
    if ":" not in peer:
        return peer
    address = IPv6Address(peer)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    network = int(address) >> (128 - _NETWORK) << (128 - _NETWORK)
    return f"{IPv6Address(network)}/{_NETWORK}"

"""Which requests belong to one tenant."""

import asyncio
from typing import Any

import pytest

from shared.http.tenants import LOCAL, peer_of, tenant_of


class Transport(asyncio.BaseTransport):
    """At this address."""

    def __init__(self, peer: object) -> None:
        super().__init__({"peername": peer})


@pytest.mark.parametrize(
    ("peer", "tenant"),
    [
        (("10.1.2.3", 5), "10.1.2.3"), (("::ffff:10.1.2.3", 5, 0, 0), "10.1.2.3"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:2::9", 6, 0, 0), "2001:db8:1:2::/64"), (("fe80::1%eth0", 6, 0, 2), "fe80::/64"),
        (("::1", 6, 0, 0), "::/64"), ("", LOCAL), (None, LOCAL),
    ],
)  # fmt: skip
def test_a_client_is_an_address_or_a_network_of_its_own(peer: Any, tenant: str) -> None:
    assert tenant_of(peer_of(Transport(peer))) == tenant

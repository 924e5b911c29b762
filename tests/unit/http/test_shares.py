"""Which requests belong to one tenant, and that turns go round by tenant, to one waiter at a time."""

import asyncio
from typing import Any

import pytest

from shared.http.shares import LOCAL, FairLock, peer_of, tenant_of


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


class Scene:
    """Tasks that want turns, and what they did."""

    def __init__(self) -> None:
        self.turns = FairLock()
        self.order: list[str] = []
        self.inside = 0
        self.go = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def _want(self, tenant: str) -> None:
        async with self.turns.of(tenant):
            self.inside += 1
            assert self.inside == 1
            self.order.append(tenant)
            await self.go.wait()
            self.inside -= 1

    async def want(self, tenants: str) -> None:
        for tenant in tenants:
            self.tasks.append(asyncio.create_task(self._want(tenant)))
        await asyncio.sleep(0)

    async def end(self) -> str:
        self.go.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert not self.turns._rows
        assert self.turns._free == 1
        return "".join(self.order)


async def test_a_tenant_with_many_requests_waits_behind_one_with_a_single_one() -> None:
    scene = Scene()
    await scene.want("aaaaaabbc")
    assert await scene.end() == "aabcabaaa"


async def test_a_waiter_that_gives_up_holds_up_nobody() -> None:
    scene = Scene()
    await scene.want("aabbc")
    for given_up in (1, 4):
        scene.tasks[given_up].cancel()
    assert await scene.end() == "abb"


async def test_a_turn_that_was_given_and_not_used_goes_on() -> None:
    scene = Scene()
    await scene.want("ab")
    scene.go.set()
    while scene.inside:
        await asyncio.sleep(0)
    scene.tasks[1].cancel()
    await scene.want("c")
    assert await scene.end() == "ac"


async def test_an_error_inside_passes_the_turn_on() -> None:
    turns = FairLock()
    with pytest.raises(ValueError, match="mine"):
        async with turns.of("a"):
            raise ValueError("mine")
    async with asyncio.timeout(60), turns.of("a"):
        pass

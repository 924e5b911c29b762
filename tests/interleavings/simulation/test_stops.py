"""Processes of a fleet on Redis that stop in good order: a minute later reads are exact again, whatever Redis did."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from shared.model.errors import OverloadedError
from shared.model.words import Envelope
from tests.interleavings.simulation.fleet import HOSTS, Scene
from tests.interleavings.simulation.system import Ingest

SOON = 60.0
"""Virtual seconds. Where a member died instead, it takes a quarter of an hour in the simulation."""


@dataclass
class Pair(Scene):
    """One ingest and one flusher."""

    counted: int = 0

    async def play(self) -> None:
        for ingest in self.ingests[1:]:
            await self.stop(ingest)
        for flusher in [*self.flushers][1:]:
            self.kill_flusher(flusher)
        await self.exact()
        await super().play()
        await self.exact()
        until = self.loop.time() + SOON
        while len(self.book._fleet.members) > len(self.ingests):
            assert self.loop.time() < until, f"a record is left: {self._told()}"
            await asyncio.sleep(0.5)
        assert not self.book._left

    def kill_flusher(self, owner: str) -> None:
        del self.flushers[owner]
        self.kill(owner)

    async def stop(self, ingest: Ingest) -> None:
        self.ingests.remove(ingest)
        await self.loop.start(ingest.owner, self.end_ingest(ingest))

    async def count(self, number: int = 3) -> None:
        """They wait to be applied, if no flusher is there."""
        (ingest,) = self.ingests
        for _ in range(number):
            await self.loop.start(ingest.owner, self._count(ingest))

    async def _count(self, ingest: Ingest) -> None:
        await ingest.publishing.durable(ingest.publishing.add("a", 1))
        self.counted += 1

    async def exact(self) -> None:
        """Each ingest reads exactly, and soon."""
        until = self.loop.time() + SOON
        for ingest in self.ingests:
            while not (reading := await self.read(ingest)).exact:
                assert self.loop.time() < until, f"not exact: {self._told()}"
                await asyncio.sleep(0.5)
            assert reading.value == self.counted

    async def honest(self) -> None:
        """No reading says that it is exact and lacks what is not applied yet."""
        for _ in range(20):
            for ingest in self.ingests:
                reading = await self.read(ingest)
                assert reading.value == self.counted or not reading.exact
            await asyncio.sleep(0.5)


async def the_documented_change_of_redis(scene: Pair) -> None:
    """All are restarted with the new setting, one after the other, while increments wait."""
    (old,), (flusher,) = scene.ingests, scene.flushers
    scene.kill_flusher(flusher)
    await scene.count()
    scene.url = f"redis://{HOSTS[1]}"
    scene.start_ingest(scene.free_disk())
    await scene.stop(old)
    scene.start_flusher()


async def a_host_that_is_stopped_and_started(scene: Pair) -> None:
    """The flusher stops first, then the ingest, then Redis, which keeps nothing."""
    (old,), (flusher,) = scene.ingests, scene.flushers
    scene.kill_flusher(flusher)
    await scene.count()
    await scene.stop(old)
    scene.site.current(HOSTS[0])[0].start()
    scene.start_ingest(scene.free_disk())
    await scene.honest()
    scene.start_flusher()


async def an_ingest_that_is_restarted_while_redis_is_away(scene: Pair) -> None:
    (old,) = scene.ingests
    redis = scene.site.current(HOSTS[0])[0]
    redis.up = False
    await scene.count()
    await scene.stop(old)
    scene.start_ingest(scene.free_disk())
    await asyncio.sleep(5.0)
    redis.start()


async def two_that_stop_at_once(scene: Pair) -> None:
    """And Redis is emptied."""
    (flusher,) = scene.flushers
    scene.kill_flusher(flusher)
    await scene.count()
    first = scene.ingests.pop()
    scene.start_ingest(scene.free_disk())
    await scene.exact()
    await scene.count()
    scene.ingests.append(first)
    await asyncio.gather(*map(scene.stop, [*scene.ingests]))
    scene.site.current(HOSTS[0])[0].start()
    scene.start_ingest(scene.free_disk())
    scene.start_flusher()


async def one_whose_publish_outlasts_its_patience(scene: Pair) -> None:
    """It is not in the list, so it is not answered, though it was published."""
    (old,) = scene.ingests
    overlay = scene.overlays[old.owner]

    async def publish() -> None:
        await scene.count()
        with pytest.raises(OverloadedError):
            async with overlay.entered([Envelope("late", {"b": 1})]):
                await overlay.close()

    await scene.loop.start(old.owner, publish())
    await scene.stop(old)
    scene.start_ingest(scene.free_disk())


async def one_with_rows_in_its_spool(scene: Pair) -> None:
    """The next ingest on the file forwards them, so it is not the one that stopped who is waited for."""
    (old,) = scene.ingests
    scene.network.gone.add((old.owner, "publish"))
    await scene.count()
    await scene.stop(old)
    scene.site.current(HOSTS[0])[0].start()
    scene.start_ingest(old.disk)


SCRIPTS = (
    the_documented_change_of_redis,
    a_host_that_is_stopped_and_started,
    an_ingest_that_is_restarted_while_redis_is_away,
    two_that_stop_at_once,
    one_whose_publish_outlasts_its_patience,
    one_with_rows_in_its_spool,
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_who_stops_in_good_order_leaves_nothing_behind(script: Callable[[Pair], Awaitable[None]]) -> None:
    Pair(script=script).run()

"""Changes in a fleet on Redis, step by step: once an exact reading has shown one, every later exact reading does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flusher.dead_letters.desk import drop
from flusher.jobs import Adding
from shared.counters.setter import DELETE, RESET, SET, ChangeRequest
from shared.model.buckets import DAY, BrokerMillis, Instant, Millis, StoreMillis
from shared.model.dead_letters import with_body
from shared.model.errors import CountersinkError
from shared.model.fleet import LONGEST_LOOK
from shared.model.jobs import ADD, Job, lifetime_of_job
from shared.model.receipts import promised
from shared.model.words import DEAD, Commit, Envelope, Reading, Receipt, ShardAdd
from tests.interleavings.simulation.fleet import Scene
from tests.interleavings.simulation.keys import Keys
from tests.interleavings.simulation.system import Ingest

LETTER = Envelope("dead", {"a": 4}, {"a": 1})
LATER = StoreMillis(10**15)


class Ingests(Scene):
    """Three of them, and a counter of 7."""

    async def play(self) -> None:
        while len(self.ingests) < 3:
            self.start_ingest(self.free_disk())
        for ingest in self.ingests:
            await self.until(ingest, lambda reading: reading.exact)
        for worker in [*self.flushers, *self.replayers]:
            self.kill(worker)
        dead = with_body(Receipt(LETTER.key, LATER, DEAD), LETTER, "why", BrokerMillis(0))
        await self.store.apply(Commit((Receipt("k", LATER), dead), (ShardAdd("a", 0, 3, 1),)))
        for ingest in self.ingests:
            await self.until(ingest, lambda reading: reading.exact and reading.value == 7)
        await super().play()

    async def until(self, ingest: Ingest, good: Callable[[Reading], bool]) -> Reading:
        until = self.loop.time() + 30.0
        while not good(reading := await self.read(ingest)):
            assert self.loop.time() < until, f"still {reading}"
            await asyncio.sleep(0.1)
        return reading

    def starts(self, ingest: Ingest, change: "Callable[[Ingest], Awaitable[Any]]") -> "asyncio.Task[Any]":
        """A change at this ingest."""

        async def run() -> object:
            return await change(ingest)

        return self.loop.start(ingest.owner, run())


def setting(kind: str) -> Callable[[Ingest], Awaitable[Any]]:
    return lambda ingest: ingest.setter.set("a", ChangeRequest(kind, 50 if kind == SET else 0))


async def _add(ingest: Ingest) -> object:
    now = int(ingest.clock.now() * 1_000)
    job = Job("j", ADD, "", 10, now, StoreMillis(10**15 + lifetime_of_job(ADD, Millis(16 * DAY))))
    setter = ingest.setter
    return await Adding(setter._store, ingest.reader, setter._overlay, exact=True)(job, ["a"])  # type: ignore[arg-type]


async def _drop(ingest: Ingest) -> object:
    return await drop(ingest.setter._store, ingest.setter._overlay, [LETTER], promised(Millis(DAY), Millis(DAY)))


CHANGES = {SET: setting(SET), RESET: setting(RESET), DELETE: setting(DELETE), "job": _add, "drop": _drop}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("how", ["killed after its commit", "cut off from Redis after its commit", "answered"])
def test_what_one_process_shows_another_does_not_unsee(change: str, how: str) -> None:
    async def script(scene: Ingests) -> None:
        changing, one, other = scene.ingests
        before = await scene.read(other)
        assert (before.value, before.exact) == (7, True)
        apply = scene.store.apply

        async def last(commit: Commit) -> Instant:
            time = await apply(commit)
            if how.startswith("killed"):
                scene.kill(changing.owner)
            elif how.startswith("cut"):
                scene.network.gone.add((changing.owner, "redis"))
            return time

        scene.store.apply = last  # type: ignore[method-assign]
        task = scene.starts(changing, CHANGES[change])
        await asyncio.wait([task], timeout=3.0)
        assert (how == "answered") == (task.done() and not task.cancelled() and task.exception() is None)
        first, second = (other, one) if how == "answered" else (one, other)
        shown = await scene.read(first, 60.0 if how == "answered" else 0.0)
        assert shown.exact
        assert shown.value != 7
        unseen = await scene.read(second, 60.0)
        assert (unseen.value, unseen.exact) == (shown.value, True)

    Ingests(script=script).run()


def test_what_finds_no_redis_to_tell_of_a_change_is_not_exact() -> None:
    """A reader that finds a mark applied, and can't remove it, does not say exact; and does not keep what it read."""

    async def script(scene: Ingests) -> None:
        changing, one, other = scene.ingests
        await scene.read(other)
        apply, settled = scene.store.apply, scene.overlays[one.owner].settle

        async def last(commit: Commit) -> Instant:
            scene.kill(changing.owner)
            return await apply(commit)

        async def lost(*what: Any) -> None:
            scene.network.gone.add((one.owner, "redis"))
            await settled(*what)

        scene.store.apply = last  # type: ignore[method-assign]
        await asyncio.wait([scene.starts(changing, CHANGES[SET])], timeout=1.0)
        scene.overlays[one.owner].settle = lost  # type: ignore[method-assign, assignment]
        shown = await scene.read(one)
        assert (shown.value, shown.exact) == (50, False)
        assert (await scene.read(other, 60.0)).value == 7
        scene.network.gone.clear()
        scene.overlays[one.owner].settle = settled  # type: ignore[method-assign]
        await scene.until(one, lambda reading: reading.exact and reading.value == 50)
        assert (await scene.read(other, 60.0)).value == 50

    Ingests(script=script).run()


def test_a_commit_of_an_earlier_epoch_changes_nothing_any_more() -> None:
    """Its mark is lost with the Redis that had it. It was on its way while another overlay was named and joined."""

    async def script(scene: Ingests) -> None:
        changing, one, other = scene.ingests
        apply, arrived = scene.store.apply, asyncio.Event()

        async def held(commit: Commit) -> Instant:
            scene.kill(changing.owner)
            await arrived.wait()
            return await apply(commit)

        scene.store.apply = held  # type: ignore[method-assign]
        task = scene.starts(changing, CHANGES[SET])
        await asyncio.wait([task], timeout=0.5)
        scene.ingests.remove(changing)
        scene.site.current("a")[0].keys = Keys()
        epoch = scene.book._fleet.overlay.epoch
        while scene.book._fleet.overlay.epoch == epoch:
            await asyncio.sleep(0.1)
        await scene.book.change(lambda fleet, _: fleet.without(changing.owner))
        for ingest in (one, other):
            await scene.until(ingest, lambda reading: reading.exact)
        arrived.set()
        await asyncio.sleep(1.0)
        assert [(await scene.read(ingest)).value for ingest in (one, other)] == [7, 7]

    Ingests(script=script).run()


@pytest.mark.parametrize("seed", range(20))
def test_a_new_overlay_shows_and_answers_nothing_while_the_old_one_may_be_read(seed: int) -> None:
    """A reader may use a look of a second ago, and so the old Redis, which lives on. The seed decides when the
    processes join the new one: without the rule, a third of the seeds fail.
    """

    async def script(scene: Ingests) -> None:
        changing, one, other = scene.ingests
        named: list[float] = []
        seen: list[tuple[float, float, Reading]] = []

        async def watch(ingest: Ingest) -> None:
            while not named or scene.loop.time() < named[0] + 3 * LONGEST_LOOK:
                begun = scene.loop.time()
                reading = await scene.read(ingest)
                seen.append((begun, scene.loop.time(), reading))
                await asyncio.sleep(0.01)

        async def commits() -> None:
            while scene.book._fleet.overlay.epoch == 1:
                await asyncio.sleep(0.001)
            named.append(scene.loop.time())

        watching = [asyncio.create_task(watch(ingest)) for ingest in (one, other)]
        await asyncio.sleep(0.5)
        member, look = scene.overlays[changing.owner]._member, scene.looks[changing.owner].last
        assert member is not None
        assert look is not None
        committing = asyncio.create_task(commits(), name="commits")
        with scene.acting(changing.owner):
            await member._name(look)
        await committing
        while True:  # as a client tries again
            answered = scene.starts(changing, CHANGES[SET])
            await asyncio.wait([answered])
            if answered.exception() is None:
                break
            assert isinstance(answered.exception(), CountersinkError)
        at = scene.loop.time()
        assert at >= named[0] + LONGEST_LOOK
        await asyncio.wait(watching)
        exact = [one for one in sorted(seen, key=lambda one: one[0]) if one[2].exact]
        values = [reading.value for _, _, reading in exact]
        assert values == sorted(values)
        epoch = scene.book._fleet.overlay.epoch
        assert epoch > 1
        between = [end for _, end, _ in exact if named[0] + LONGEST_LOOK < end < named[0] + LONGEST_LOOK + 0.2]
        assert not between

    Ingests(seed=seed, script=script).run()

"""Commits: each has a span if an envelope in it has one, and flushers with different settings count nothing twice."""

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count

import pytest

from flusher.flush.commit_loop import PromiseKeeper, apply
from flusher.flush.flusher import Flusher
from flusher.flush.window import TOO_OLD, Plan, Window
from shared.model.buckets import DAY, HOUR, Instant, Millis, Rules
from shared.model.errors import AlreadyAppliedError, RefusedError
from shared.model.receipts import promised
from shared.model.words import Commit, Envelope
from shared.runtime.otlp import OtlpTraces
from shared.runtime.traces import Trace
from tests.contracts.store import commit
from tests.processes.collector import Collector, collecting
from tests.world.flushing import Bench, tools_of
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.store import MemoryStore

PUBLISHED = Trace("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True)


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    async with collecting() as one:
        for name, value in one.settings.items():
            monkeypatch.setenv(name, value)
        yield one


async def test_a_commit_that_failed_has_a_span_of_its_own(collector: Collector) -> None:
    clock, traces = ManualClock(), OtlpTraces("1", collector.settings["OTEL_EXPORTER_OTLP_ENDPOINT"])
    store, broker = MemoryStore(clock), MemoryBroker(clock)
    parts = replace(tools_of(store, broker, MemoryOverlay(broker), clock), traces=traces)
    plain, traced = Envelope("plain", {"a": 1}), Envelope("e", {"a": 1}, traceparent=PUBLISHED.traceparent())
    await apply(commit(("a", 1), keys=("r1",)), [plain], parts)
    await apply(commit(("a", 1), keys=("r2",)), [plain, traced], parts)
    with pytest.raises(AlreadyAppliedError):
        await apply(commit(("a", 1), keys=("r2",)), [traced], parts)
    await collector.until(lambda: len(collector.spans) == 2)
    traces.close()
    good, bad = collector.spans
    assert [one.links for one in (good, bad)] == [[PUBLISHED]] * 2
    assert good.attributes == {"countersink.envelopes": 2, "countersink.links_left_out": 0}
    assert (good.failed, bad.failed, bad.attributes["error.type"]) == (False, True, "AlreadyAppliedError")


SHORT, LONG = Millis(600_000), Millis(31 * DAY)
MOST_STEPS = 100
"""Of one flush."""


class Settings(Bench):
    """A flusher that was started with that retention; another one can be put in its place."""

    def __init__(self, retention: Millis) -> None:
        super().__init__(ages=True)
        self.restart(retention)

    def restart(self, retention: Millis) -> None:
        before = self.flusher
        self.flusher = Flusher(before._tools, before._policy, topic="t", lease=60.0)
        keeper = PromiseKeeper(self.store, self.clock, promised(retention, DAY))
        self.flusher._tools = replace(before._tools, promise_keeper=keeper)

    async def apply_without_ack(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As after a seek: the broker delivers it again."""
        with monkeypatch.context() as patched:

            async def never(*_: object) -> None:
                pass

            patched.setattr(self.broker, "ack", never)
            await self.flush()

    async def again(self) -> None:
        await self.flusher.sweep_once()
        await self.flush()


@pytest.mark.parametrize(("before", "after"), [(SHORT, LONG), (LONG, SHORT), (SHORT, SHORT), (LONG, LONG)])
@pytest.mark.parametrize("days", [1, 2, 8, 31, 33])
async def test_what_comes_again_after_a_change_of_the_retention_counts_once(
    before: Millis, after: Millis, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Settings(before)
    await bench.publish(Envelope("e", {"a": 1}, {}))
    await bench.apply_without_ack(monkeypatch)
    bench.clock.turn(days * DAY / 1_000)
    bench.restart(after)
    await bench.again()
    assert await bench.total() == 1


async def test_two_at_once_with_different_settings_make_receipts_by_the_greater() -> None:
    short, long = Settings(SHORT), Settings(LONG)
    long.store, long.broker = short.store, short.broker
    long.flusher._tools = replace(
        long.flusher._tools,
        store=short.store,
        subscription=short.broker,
        promise_keeper=PromiseKeeper(short.store, short.clock, promised(LONG, DAY)),
        clock=short.clock,
    )
    for bench in (short, long, short):
        await short.publish(Envelope(f"e{id(bench)}-{short.broker.unburied()}", {"a": 1}, {}))
        await bench.flusher.pull_once(0)
        short.clock.turn(61)  # each has looked at the promises since the other started
        await bench.flusher.flush_once()
    assert len(await short.store.promises()) == 2
    newest = max(receipt.expires for receipt in short.store._receipts.values())
    assert newest - await short.store.now() > LONG


async def test_what_is_too_old_for_the_smaller_promise_is_buried_by_the_greater(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Settings(SHORT)
    await bench.publish(Envelope("e", {"a": 1}, {}))
    await bench.apply_without_ack(monkeypatch)
    bench.clock.turn(2 * DAY / 1_000)
    bench.restart(LONG)
    await bench.again()
    assert set(bench.broker.buried().values()) == {TOO_OLD}


@pytest.mark.parametrize("first", ["applied", "given up"])
async def test_a_second_use_of_an_id_that_comes_too_late_ends(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It adds nothing, so it is done; where the first one was given up, it is too."""
    bench, apply, plan = Settings(SHORT), MemoryStore.apply, Window.plan
    steps = count()

    def limited(window: Window, most: int, rules: Rules, room: int) -> Plan:
        assert next(steps) < MOST_STEPS, "it is tried for ever"
        return plan(window, most, rules, room)

    async def refuse(commit: Commit) -> Instant:
        if commit.adds:
            raise RefusedError("poison")
        return await apply(bench.store, commit)

    if first == "given up":
        monkeypatch.setattr(bench.store, "apply", refuse)
    await bench.flush(Envelope("e", {"a": 1}, {}, retried=True, attempt="first"))
    await bench.publish(Envelope("e", {"a": 1}, {}, retried=True, attempt="second"))
    await bench.flusher.pull_once(0)
    bench.clock.turn(2 * HOUR / 1_000)  # receipts of ids that clients choose live for longer
    monkeypatch.setattr(Window, "plan", limited)
    await bench.flusher.flush_once()
    assert not bench.broker.unburied()
    assert [why for why in bench.broker.buried().values() if why == TOO_OLD] == [TOO_OLD] * (first == "given up")

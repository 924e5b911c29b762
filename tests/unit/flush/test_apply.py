"""A commit has a span if an envelope in it has one, and the span says how the commit ended."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from flusher.flush.commit_loop import apply
from shared.model.errors import AlreadyAppliedError
from shared.model.words import Envelope
from shared.runtime.otlp import OtlpTraces
from shared.runtime.traces import Trace
from tests.contracts.store import commit
from tests.processes.collector import Collector, collecting
from tests.world.flushing import tools_of
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

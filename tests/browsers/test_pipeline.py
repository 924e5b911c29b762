"""The page of the pipeline: numbers, charts, what needs somebody, and the processes."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shared.fleet import FleetView
from shared.runtime import metrics
from tests.browsers.chromium import IN_CHROMIUM
from tests.browsers.judging import see
from tests.browsers.tab import Tab, use_key
from tests.http.keys import keys_file
from tests.http.service import Service, running
from tests.world.manual_clock import ManualClock
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore


@pytest.fixture
async def looks() -> AsyncIterator[FleetView]:
    clock = ManualClock()
    found = FleetView(MemoryFleetBook(MemoryStore(clock)), clock, 0.0)
    await found.change(lambda fleet, _: fleet.names("nonce", "redis-1", "redis://r").joins("ingest-1", "topic"))
    await found.change(lambda fleet, _: fleet.owes("ingest-2", "topic", "spool"))
    await found.change(lambda fleet, now: fleet.flushes("flusher-1", "topic", now))
    yield found
    await found.close()


@pytest.fixture
def on_pubsub() -> Iterator[None]:
    """The metrics say that this process uses Pub/Sub, and is no flusher."""
    pulled = metrics.PULLED.get()
    metrics.PULLED.inc(-pulled)
    metrics.START.labels("pubsub", "datastore", "redis").set(1_700_000_000)
    yield
    metrics.START.clear()
    metrics.PULLED.inc(pulled)


async def test_it_shows_how_increments_move(
    service: Service, balanced: None, tab: Tab, axe: str, tmp_path: Path
) -> None:
    await service.incr("page:home", b'{"delta": 5}')
    await tab.show(f"{service.url}/#/pipeline", "All processes share one file")
    pending = "document.querySelectorAll('.flow dd span')[1].textContent"
    await tab.until(f"{pending} === '1'")
    assert await tab.run("document.querySelectorAll('.chart canvas').length") == 4
    accepted = await tab.run("document.querySelector('.flow dd span').textContent")
    await service.apply()
    await tab.until(f"{pending} === '0'")
    assert await tab.run("document.querySelector('.flow dd span').textContent") == accepted
    assert await tab.run(
        "[...document.querySelectorAll('.checks div:not([hidden]) dt')].map(one => one.innerText)"
    ) == [
        "Drift",
        "Dead letters",
        "Contention",
    ]
    await tab.until("document.body.innerText.includes('0: everything that was accepted is applied')")
    await see(tab, axe, "pipeline", tmp_path)


@IN_CHROMIUM
async def test_it_shows_the_fleet_and_what_is_wrong(
    tmp_path: Path, tab: Tab, axe: str, looks: FleetView, on_pubsub: None
) -> None:
    async with running(tmp_path, looks=looks) as service:
        metrics.SPOOLING.set(1)
        try:
            await tab.show(f"{service.url}/#/pipeline", "ingest-1")
            rows = await tab.run("[...document.querySelectorAll('tbody tr')].map(row => row.innerText.split('\\t'))")
            assert [row[0] for row in rows] == ["ingest-1", "ingest-2", "flusher-1"]
            assert (
                rows[1][2] == "the shared overlay may lack some of its increments; it may have envelopes in its spool"
            )
            assert await tab.run("document.body.innerText.includes('Reads are not exact now')")
            wrong = "[...document.querySelectorAll('.dot.bad')].map(one => one.parentNode.innerText)"
            assert "Spool" in await tab.run(wrong)
            assert await tab.run("document.body.innerText.includes('Look at this. It takes increments')")
            await see(tab, axe, "pipeline-fleet", tmp_path)
        finally:
            metrics.SPOOLING.set(0)
        await tab.until(f"!({wrong}).includes('Spool')")


PANELS = "[...document.querySelectorAll('.panels .card:not([hidden]) h2')].map(one => one.textContent)"


@IN_CHROMIUM
async def test_an_ingest_alone_does_not_say_what_only_flushers_know(
    service: Service, tab: Tab, on_pubsub: None
) -> None:
    await tab.show(f"{service.url}/#/pipeline", "since this process does not flush")
    shown = ["Increments per second", "Waiting to be published", "Time of a publish", "Envelopes of the spool"]
    assert await tab.run(PANELS) == shown
    numbers = "[...document.querySelectorAll('.flow dd span')].map(one => /\\d/.test(one.textContent))"
    assert await tab.run(numbers) == [True, False, False]
    unknown = await tab.run("[...document.querySelectorAll('.dot.unknown')].map(one => one.parentNode.innerText)")
    assert {"Drift", "Contention"} <= set(unknown)
    metrics.PULLED.inc()
    await tab.until(f"{PANELS}.includes('Time of a commit')")


@IN_CHROMIUM
async def test_a_key_that_may_only_read_is_told_who_sees_the_fleet(tmp_path: Path, tab: Tab, looks: FleetView) -> None:
    file, keys = keys_file(tmp_path, reader={"scopes": ["read"]})
    async with running(tmp_path, keys_file=str(file), looks=looks) as service:
        await use_key(tab, service.url, keys["reader"])
        await tab.show(f"{service.url}/#/pipeline", "A key with the scope admin shows the others.")

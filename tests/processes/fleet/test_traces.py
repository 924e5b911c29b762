"""Traces from requests over envelopes to commits, on each pair of broker and store, with real processes."""

import asyncio
import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from shared.runtime.traces import MOST_LINKS, Trace
from tests.processes.collector import WITHIN, Collector
from tests.processes.fleet.pairs import Embedded, Pair, message
from tests.processes.harness import processes
from tests.world.scraping import Scrape

POST = "POST /v1/counters/{name}"
ENVELOPE = "publish envelope"
COMMIT = "commit"
LEFT_OUT = "countersink.links_left_out"
MANY = MOST_LINKS + 22


def client_span(number: int, *, sampled: bool = True) -> Trace:
    return Trace(f"{number + 1:032x}", f"{number + 1:016x}", sampled)


async def post(session: aiohttp.ClientSession, url: str, traceparent: str = "", more: str = "") -> int:
    headers = {"traceparent": traceparent} if traceparent else {}
    async with session.post(f"{url}/v1/counters/a{more}", headers=headers) as response:
        return response.status


async def test_a_trace_goes_from_the_request_to_the_commit(pair: Pair, collector: Collector, tmp_path: Path) -> None:
    client = client_span(0)
    settings = pair.settings | collector.settings
    async with processes(tmp_path, tmp_path / "log", **settings) as started, aiohttp.ClientSession() as session:
        ingest = await started.start("ingest", "--port", "0")
        flusher = await started.start("flusher", OTEL_SERVICE_NAME="shop-counts")
        assert await post(session, ingest.url, client.traceparent()) == 202
        await collector.until(lambda: collector.named(POST) and collector.named(COMMIT))
        assert await ingest.end(15) == await flusher.end(15) == 0
    (request,), (envelope,), (commit,) = map(collector.named, (POST, ENVELOPE, COMMIT))
    assert {request.own.trace, envelope.own.trace, commit.own.trace} == {client.trace}
    assert (request.kind, envelope.kind, commit.kind) == ("SERVER", "PRODUCER", "CONSUMER")
    assert request.parent == client.span
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/counters/{name}",
        "http.response.status_code": 202,
    }
    assert (envelope.parent, envelope.links) == (request.own.span, [request.own])
    assert envelope.attributes == {"countersink.increments": 1, "countersink.links_left_out": 0}
    assert (commit.parent, commit.links) == (envelope.own.span, [envelope.own])
    assert commit.attributes == {"countersink.envelopes": 1, "countersink.links_left_out": 0}
    assert (request.service, envelope.service, commit.service) == ("countersink", "countersink", "shop-counts")
    assert len(collector.spans) == 3


async def test_many_requests_and_envelopes_share_a_commit(pair: Pair, collector: Collector, tmp_path: Path) -> None:
    """Other publishers' messages link, too. All messages are there before the flusher starts."""
    async with processes(tmp_path, tmp_path / "log", **pair.settings, **collector.settings) as started:
        ingest = await started.start("ingest", "--port", "0", COUNTERSINK_LINGER_MS="10000")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            assert await send(session, ingest.url, MANY, held=pair) == {202}
        foreign = [message("a", 1, str(number)) for number in range(MANY)]
        theirs = [client_span(1_000 + number) for number in range(MANY)]
        await pair.publish(
            [
                replace(one, attributes={**one.attributes, "ce-traceparent": span.traceparent()})
                for one, span in zip(foreign, theirs, strict=True)
            ]
        )
        await collector.until(lambda: len(collector.named(POST)) == MANY)
        await started.start("flusher", COUNTERSINK_FLUSH_INTERVAL="2")
        await collector.until(lambda: _links(collector, COMMIT) == MANY + len(collector.named(ENVELOPE)))
    requests, envelopes, commits = map(collector.named, (POST, ENVELOPE, COMMIT))
    assert _links(collector, ENVELOPE) == MANY
    assert {link for one in envelopes for link in one.links} <= {one.own for one in requests}
    assert {link for one in commits for link in one.links} <= {*theirs, *(one.own for one in envelopes)}
    for span in (*envelopes, *commits):
        assert len(set(span.links)) == len(span.links)
        assert len(span.links) == MOST_LINKS or span.attributes[LEFT_OUT] == 0
    if isinstance(pair, Embedded):  # what goes into one envelope is certain there
        assert [span.attributes[LEFT_OUT] for span in envelopes] == [0, MANY - 1 - MOST_LINKS]
        assert [len(span.links) for span in commits] == [MOST_LINKS]


async def send(session: aiohttp.ClientSession, url: str, number: int, held: Pair) -> set[int]:
    """Send so many requests of different traces. If their publishes can be held up, the first one is published alone,
    and then all others together.
    """
    parents = [client_span(one).traceparent() for one in range(number)]
    if not isinstance(held, Embedded):
        return set(await asyncio.gather(*(post(session, url, parent) for parent in parents)))
    with contextlib.closing(sqlite3.connect(held.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(post(session, url, parents[0]))
        await until_under_way(session, url, 1)
        rest = [asyncio.create_task(post(session, url, parent)) for parent in parents[1:]]
        await until_under_way(session, url, number)
        other.execute("ROLLBACK")
        return set(await asyncio.gather(first, *rest))


async def until_under_way(session: aiohttp.ClientSession, url: str, number: int) -> None:
    """Wait until so many requests are under way, beside the one that asks."""
    async with asyncio.timeout(WITHIN):
        while True:
            async with session.get(f"{url}/metrics") as response:
                if Scrape(await response.text()).sum("countersink_requests_in_flight") == number + 1:
                    return


def _links(collector: Collector, name: str) -> int:
    """The links of all spans of this name, and those that were left out."""
    return sum(len(one.links) + int(one.attributes[LEFT_OUT]) for one in collector.named(name))


@pytest.mark.parametrize(
    "traceparent",
    ["", client_span(0, sampled=False).traceparent(), "nonsense", f"00-{'0' * 32}-{1:016x}-01", f"00-{1:032x}-01"],
)
async def test_without_a_sampled_trace_nothing_is_exported(
    collector: Collector, tmp_path: Path, traceparent: str
) -> None:
    async with processes(tmp_path, tmp_path / "log", **collector.settings) as started:
        running = await started.start("up", "--port", "0")
        async with aiohttp.ClientSession() as session:
            for more in ("", "?wait=applied"):  # on the fast path, and not
                assert await post(session, running.url, traceparent, more) in {200, 202}
        assert await running.end(15) == 0
    assert collector.spans == []

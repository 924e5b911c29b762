"""Who of the clients of `countersink check` reads, and which requests have failed."""

import asyncio
from typing import Any

import pytest

from countersink.answers import UnavailableError
from countersink.transport import Request, Transport
from countersink_server.check.ledger import History, Ledger
from countersink_server.check.load import HASTY, Load
from tests.unit.client.scripted import serving


@pytest.mark.parametrize(("clients", "readers"), [(2, 1), (3, 1), (4, 1), (7, 1), (8, 2)])
def test_a_quarter_reads_and_at_least_one(clients: int, readers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[bool] = []
    monkeypatch.setattr(Load, "_client", lambda _, its: reads.append(its))
    nowhere: Any = None
    Load(nowhere, Ledger(History(None)), "x").run(0, clients, lambda: None)
    assert (len(reads), sum(reads)) == (clients, readers)


async def test_what_is_abandoned_on_purpose_has_not_failed() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    def attempt(url: str, seconds: float) -> tuple[int, int]:
        transport = Transport(url, {}, None)
        load = Load(lambda: transport, Ledger(History(None)), "x")
        with pytest.raises(UnavailableError):
            load._attempt(transport, Request("GET", "/v1/counters/a"), seconds)
        transport.close()
        return load.abandoned, load.failures

    async with serving(silent) as url:
        assert await asyncio.to_thread(attempt, url, HASTY) == (1, 0)
        assert await asyncio.to_thread(attempt, url, 2 * HASTY) == (0, 1)
    assert await asyncio.to_thread(attempt, "http://127.0.0.1:1", HASTY) == (0, 1)

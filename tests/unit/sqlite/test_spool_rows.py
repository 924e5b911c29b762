"""A process reads the rows that it finds in its spool file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.config.settings import Settings
from shared.model.errors import CountersinkError
from shared.model.words import Envelope
from shared.runtime.clock import SystemClock
from shared.sqlite.spool import SpoolRows
from shared.wire.codec import encode
from shared.wiring.files import Queue, open_spool

NUMBER = 250
"""More than are read at once."""


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[Queue]:
    settings = Settings(
        broker="pubsub://p/likes?subscription=flushers", spool=str(tmp_path / "spool.db"), spool_disk="durable"
    )
    spool = open_spool(settings, SystemClock(), "test", makes=True)
    assert spool is not None
    await spool.publisher.publish([encode(Envelope(f"e{number}", {"a": 1})) for number in range(NUMBER)])
    yield spool
    await spool.close()


async def rest(rows: SpoolRows, found: list[str]) -> None:
    """What is left to be read."""
    async for envelope, _ in rows.read():
        found.append(envelope.id)


def is_read(rows: SpoolRows) -> bool:
    return rows.unreadable is False


async def test_a_reader_that_stops_early_goes_on_where_it_stopped(spool: Queue) -> None:
    """The overlay's copy was full."""
    rows = spool.rows()
    found: list[str] = []
    async for envelope, _ in rows.read():
        if len(found) == 120:
            break
        found.append(envelope.id)
    assert not is_read(rows)
    await rest(rows, found)
    assert found == [f"e{number}" for number in range(NUMBER)]
    await rest(rows, found)
    assert len(found) == NUMBER
    assert is_read(rows)


async def test_after_an_error_the_rest_is_not_taken_for_read(spool: Queue) -> None:
    rows = spool.rows()
    found: list[str] = []
    readable = rows._all
    asked = 0

    def fails(*question: object) -> object:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise CountersinkError("a disk error")
        return readable(*question)  # type: ignore[arg-type]

    rows._all = fails  # type: ignore[assignment,method-assign]
    with pytest.raises(CountersinkError):
        await rest(rows, found)
    assert not is_read(rows)
    await rest(rows, found)
    assert found == [f"e{number}" for number in range(NUMBER)]

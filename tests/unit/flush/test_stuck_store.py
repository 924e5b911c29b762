"""While a store is stuck the flusher stops pulling, keeps its leases and its memory flat; later all is applied."""

import asyncio
import gc
import logging
import sqlite3
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from flusher.flush.flusher import LOOK
from flusher.service import make_flusher
from shared.config.settings import Settings
from shared.model.buckets import Instant
from shared.model.errors import TransientError
from shared.model.words import Commit, Envelope
from shared.runtime.retry import Stop
from shared.wire.codec import encode
from shared.wiring.process import Parts, connect
from tests.contracts.store import total

WINDOW: Final = 20_000
"""Bytes that the flusher may hold in a window."""
MESSAGES: Final = 3_000
"""Three times as much as it may hold."""
COUNTERS: Final = 7
MOST_GROWTH: Final = 1.1


async def publish(parts: Parts) -> None:
    for first in range(0, MESSAGES, 100):
        numbers = range(first, first + 100)
        await parts.publisher.publish([encode(Envelope(f"e{n:05}", {f"c{n % COUNTERS}": 1})) for n in numbers])


async def extended(reader: sqlite3.Connection, seconds: float) -> None:
    """All leases, by so much."""
    (first,) = (end,) = reader.execute("SELECT min(until) FROM leases").fetchone()
    while end < first + 1_000 * seconds:
        await asyncio.sleep(LOOK)
        (end,) = reader.execute("SELECT min(until) FROM leases").fetchone()


def memory() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture
async def _leases_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not lapse while the machine pauses."""
    loop = asyncio.get_running_loop()
    clock = SimpleNamespace(time=lambda: 1_800_000_000 + loop.time(), clock_gettime=lambda _: loop.time())
    monkeypatch.setattr("shared.runtime.clock.time", clock)


@pytest.mark.usefixtures("_leases_by_the_loop")
async def test_a_store_that_is_stuck_for_long(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(
        logging.ERROR, "flusher.flush.commit_loop"
    )  # pytest keeps what is logged, and errors keep what was tried
    settings = Settings(
        broker=f"sqlite:///{tmp_path}/c.db", max_window_bytes=WINDOW, flush_interval=0.0, lease=1.0, drain_timeout=30.0
    )
    parts = connect(settings, makes=True)
    try:
        await publish(parts)
        apply, stuck, tried = parts.store.apply, True, 0

        async def fail(commit: Commit) -> Instant:
            nonlocal tried
            tried += 1
            if stuck:
                await asyncio.sleep(LOOK)
                raise TransientError("the store does not answer")
            return await apply(commit)

        parts.store.apply = fail  # type: ignore[method-assign]
        flusher, stop = make_flusher(parts, settings), Stop()
        tracemalloc.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(flusher.run(stop, settings.drain_timeout))
                async with asyncio.timeout(60):
                    while not (tried and flusher._policy.full(flusher._window)):
                        await asyncio.sleep(LOOK)
                    held = {delivery.token for delivery in flusher._held()}
                    reader = parts.store.database.reader()  # type: ignore[attr-defined]

                    await extended(reader, settings.lease)
                    before = memory()
                    await extended(reader, 2 * settings.lease)
                    assert {delivery.token for delivery in flusher._held()} == held, "it pulled, or lost a lease"
                    after = memory()
                    assert after < before * MOST_GROWTH, f"{before} bytes, then {after}"
                    largest = max(len(delivery.message.data) for delivery in flusher._held())
                    assert sum(len(d.message.data) for d in flusher._held()) <= 2 * (WINDOW + largest)
                    assert len(held) < MESSAGES / 2
                    stuck = False
                    while reader.execute("SELECT count(*) FROM messages").fetchone() != (0,):
                        await asyncio.sleep(LOOK)
                stop.set()
        finally:
            tracemalloc.stop()
        assert sum([await total(parts.store, f"c{number}") for number in range(COUNTERS)]) == MESSAGES
    finally:
        await parts.close()

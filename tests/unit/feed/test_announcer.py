"""How the process that reports to a receiver ends."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from flusher.feed.announcer import Announcer
from shared.model.feed import Event
from shared.runtime.retry import Stop
from tests.unit.feed.test_book import TOLD, opened


class Silent:
    """Takes the connection, and never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.closed = False

    async def tell(self, _: Sequence[Event]) -> Sequence[str]:
        self.asked.set()
        await asyncio.Event().wait()
        return ()

    async def close(self) -> None:
        self.closed = True


async def test_a_receiver_that_does_not_answer_holds_no_stop_up(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as world:
        await world.begin()
        await world.count(1)
        silent, stop = Silent(), Stop()
        reporting = asyncio.create_task(Announcer(world.book, silent, "the consumer", TOLD).run(stop))
        await silent.asked.wait()
        stop.set()
        async with asyncio.timeout(20):
            await reporting
        assert silent.closed
        assert await world.book.open(TOLD)
        assert [one.counter for one in (await world.book.owed(100)).changes] == ["page:a"]

"""Dead letters over HTTP in a fleet: looks consume nothing, and two administrators and a kill count nothing twice."""

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from shared.model.words import Message
from tests.processes.fleet.pairs import Pair, message
from tests.processes.fleet.poison import Poison
from tests.processes.harness import processes

COUNTER = "refused"
LETTERS = 150
NONSENSE = b"nonsense"
WITHIN = 90.0


async def listed(session: aiohttp.ClientSession, url: str) -> list[dict[str, Any]]:
    """All pages, as far as Pub/Sub tells."""
    found: list[dict[str, Any]] = []
    token: str | None = ""
    while token is not None:
        async with session.get(f"{url}/v1/dead-letters", params={"limit": "100", "page_token": token}) as response:
            assert response.status == 200, await response.text()
            page = await response.json()
        found += page["dead_letters"]
        token = page["next_page_token"]
    return found


async def change(session: aiohttp.ClientSession, url: str, what: str, **asked: Any) -> dict[str, Any]:
    async with session.post(f"{url}/v1/dead-letters/{what}", json=asked) as response:
        assert response.status == 200, await response.text()
        done: dict[str, Any] = await response.json()
        return done


async def reading(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with session.get(f"{url}/v1/counters/{COUNTER}?max_age=0") as response:
        assert response.status == 200, await response.text()
        found: dict[str, Any] = await response.json()
        return found


@pytest.mark.timeout(300)
async def test_letters_are_shown_to_all_and_count_once(pair: Pair, tmp_path: Path) -> None:
    poison = Poison(pair, [COUNTER])
    await poison.begin()
    settings = pair.settings | {"COUNTERSINK_FLUSH_INTERVAL": "0.1"}
    async with processes(tmp_path, tmp_path / "log", **settings) as started, aiohttp.ClientSession() as session:
        one, other, _ = await asyncio.gather(
            *(started.start("ingest", "--port", "0") for _ in range(2)), started.start("flusher")
        )
        letters = [message(COUNTER, 2, f"id-{number}") for number in range(LETTERS)]
        await pair.publish([*letters, Message(NONSENSE)])
        async with asyncio.timeout(WITHIN):
            while len(await pair.dead_letters()) < LETTERS + 1:
                await asyncio.sleep(0.2)
        for url in (one.url, other.url, one.url):  # a look hides no letter from the next one
            found = await listed(session, url)
            dead = [letter for letter in found if letter["state"] == "dead"]
            assert len({letter["id"] for letter in dead}) == len(dead) == LETTERS
            assert {str(letter["counters"]) for letter in dead} == {str({COUNTER: 2})}
            assert [letter["start"] for letter in found if letter["state"] == "unreadable"] == ["nonsense"]
        assert (await reading(session, one.url))["applied"] == 0
        assert len(await pair.dead_letters()) == LETTERS + 1
        await poison.end()
        both = [asyncio.create_task(change(session, url, "replay", all=True)) for url in (one.url, other.url)]
        async with asyncio.timeout(WITHIN):
            while not (await reading(session, other.url))["applied"]:
                await asyncio.sleep(0.01)
        await one.end(signal.SIGKILL)
        with contextlib.suppress(aiohttp.ClientError):
            await both[0]
        await both[1]
        async with asyncio.timeout(WITHIN):  # what the killed one held is hidden for as long as its lease
            left: list[dict[str, Any]] = []
            while [letter["state"] for letter in left] != ["unreadable"]:
                await change(session, other.url, "replay", all=True)
                left = await listed(session, other.url)
        total = await reading(session, other.url)
        assert (total["value"], total["applied"], total["pending"]) == (2 * LETTERS, 2 * LETTERS, 0)
        gone = await change(session, other.url, "drop", ids=[letter["id"] for letter in left])
        assert [letter["increments"] for letter in gone["dropped"]] == [0]
        assert await listed(session, other.url) == []
        assert await pair.dead_letters() == []
        assert (await change(session, other.url, "replay", all=True))["letters"] == 0
        assert (await reading(session, other.url))["applied"] == 2 * LETTERS

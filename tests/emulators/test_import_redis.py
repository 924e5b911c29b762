"""countersink import reads whole numbers from a real Redis, also while its clients go on."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from shared.model.errors import TransientError
from shared.model.moving import Foreign
from shared.moving.redis_keys import PAGE, RedisKeys
from tests.cli.running import Done, run
from tests.emulators.redis_fixtures import RedisServer


@pytest.fixture
async def there(redis: RedisServer) -> AsyncIterator[Any]:
    client = Redis.from_url(redis.url)
    yield client
    await client.aclose()


async def read(redis: RedisServer, match: str = "*", prefix: str = "") -> dict[str, int | str]:
    """Counters with their totals or flaws, and what is left out."""
    keys = RedisKeys(redis.url, match)
    found = [one async for one in keys.counters(prefix)]
    await keys.close()
    told: dict[str, int | str] = {one.name: one.flaw or one.total for one in found if isinstance(one, Foreign)}
    assert len(told) == len([one for one in found if isinstance(one, Foreign)])
    return told | {one: "" for one in found if isinstance(one, str)}


async def test_keys_and_fields_are_counters_and_the_rest_is_said(redis: RedisServer, there: Any) -> None:
    await there.mset({"page:a": 5, "page:b": -(2**63), "page:c": "1.5", "page:d": "", "other": 7, b"\xff": 1})
    await there.hset("page", mapping={"e": 9, "f": "x"})
    await there.zadd("page:top", {"a": 1})
    assert await read(redis) == {
        "page:a": 5,
        "page:b": -(2**63),
        "page:c": "it is no whole number",
        "page:d": "it is no whole number",
        "other": 7,
        "page:e": 9,
        "page:f": "it is no whole number",
        "page:top is left out: it is a zset": "",
        "\\xff is left out: its name is not UTF-8": "",
    }
    assert (await read(redis, "page:[ab]"), await read(redis, prefix="page:e")) == (
        {"page:a": 5, "page:b": -(2**63)},
        {"page:e": 9, "page:top is left out: it is a zset": "", "\\xff is left out: its name is not UTF-8": ""},
    )


async def test_a_name_in_two_places_is_imported_from_one(redis: RedisServer, there: Any) -> None:
    await there.set("a:b:c", 5)
    await there.hset("a", "b:c", 5)
    keys = RedisKeys(redis.url, "*")
    one, two = [each async for each in keys.counters("")]
    assert (one, isinstance(two, Foreign) and "twice" in two.flaw) == (Foreign("a:b:c", 5), True)
    await keys.close()


async def test_large_ones_are_read_page_by_page_and_each_counter_once(redis: RedisServer, there: Any) -> None:
    number = 3 * PAGE
    await there.mset({f"k{each}": each for each in range(number)})
    await there.hset("h", mapping={f"{each}": each for each in range(number)})
    assert await read(redis) == {
        **{f"k{each}": each for each in range(number)},
        **{f"h:{each}": each for each in range(number)},
    }


async def test_a_server_that_is_away_is_one_error(redis: RedisServer) -> None:
    redis.kill()
    with pytest.raises(TransientError, match="does not answer as it should"):
        await read(redis)


async def test_while_clients_go_on_each_increment_is_added_once(redis: RedisServer, there: Any, tmp_path: Path) -> None:
    stop = asyncio.Event()
    counted = {f"page:{each}": 0 for each in range(50)}

    async def count() -> None:
        while not stop.is_set():
            for name in counted:
                counted[name] += 1
                await there.incr(name) if name < "page:3" else await there.hincrby("page", name[5:], 1)

    async def imported() -> tuple[Done, dict[str, Any]]:
        arguments = ("--variant", "redis", "--from", redis.url, "--match", "page*", "--json")
        done = await asyncio.to_thread(run, "import", *arguments, "--data", ".", cwd=tmp_path)
        return done, json.loads(done.out.splitlines()[-1])

    made = await asyncio.to_thread(run, "provision", "--data", ".", cwd=tmp_path, COUNTERSINK_EXISTING="yes")
    assert made.code == 0
    load = asyncio.create_task(count())
    async with asyncio.timeout(60):
        while min(counted.values()) < 2:  # each is there once it is counted again
            await asyncio.sleep(0.01)
    added = 0
    for _ in range(3):
        done, said = await imported()
        assert (done.code, said["counters"]["found"]) == (0, 50), done
        assert said["added"] > 0
        added += said["added"]
    stop.set()
    await load
    done, said = await imported()
    assert (done.code, added + said["added"]) == (0, sum(counted.values()))
    done, said = await imported()
    assert (done.code, said["added"]) == (0, 0)
    listed = await asyncio.to_thread(run, "audit", "--all", "--json", "--data", ".", cwd=tmp_path)
    totals = [json.loads(line) for line in listed.out.splitlines()]
    assert {one["name"]: one["shards"] for one in totals if "name" in one} == counted

"""The stand-in for Redis in the simulation answers the overlay's scripts as a real server does."""

import random
import re
import time
from typing import Any

import orjson
import pytest

from shared.redis import scripts
from shared.redis.scripts import Script
from shared.redis.server import Links
from tests.emulators.redis_fixtures import RedisServer
from tests.interleavings.simulation.servers import RedisServer as StandIn

PREFIX = b"countersink:nonce:"
KEYS = [f"k{number}" for number in range(6)]
MEMBERS = ["m1", "m2", "m3"]
COUNTERS = ["a", "b", "café", "d"]
_INSTANT = re.compile(rb"\b1[0-9]{12}\b")


def soon(script: Script) -> Script:
    """The same, with no patience: entries are due at once, and floors are forgotten at once."""
    text = script.text.replace(str(scripts.FLOORS_KEPT), "0").replace(str(scripts.SETTLE_WITHIN_MS), "0")
    return Script(text.replace("now + age", "now"))


WRITE, FORGET, UNSETTLED = map(soon, (scripts.WRITE, scripts.FORGET, scripts.UNSETTLED))


def drawn(chance: random.Random) -> tuple[Script, list[Any]]:
    """One call, without the identity."""
    key, publish_try = chance.choice(KEYS), f"x.{chance.randint(0, 2)}"
    member, floor = chance.choice(MEMBERS), chance.choice([0, 7, 10**12, 2**60 + chance.randint(0, 9)])
    names = chance.sample(COUNTERS, chance.randint(1, 3))
    payload = orjson.dumps({name: chance.choice(["5", "L-3", '7 [["i1",2]]']) for name in names})
    confirmed, again = chance.choice([(0, 0), (1, 0), (1, 1)])
    written = [member, confirmed, again, key, publish_try, floor % 10**6, payload]
    calls: list[tuple[Script, list[Any]]] = [
        *[(WRITE, written)] * 4,
        (WRITE, [member, 1, 1]),
        (WRITE, [*written, chance.choice(KEYS), "y.0", 3, payload]),
        (scripts.WITHDRAW, [key, publish_try]),
        (scripts.SETTLE, [floor, key, chance.choice(KEYS)]),
        (scripts.RAISE, [floor, names[0]]),
        (FORGET, [chance.choice([0, 10**5])]),
        (
            scripts.VIEW,
            [chance.choice([0, 10]), chance.choice([0, 20]), *(part for name in names for part in (name, ""))],
        ),
        (scripts.UNDER, [chance.choice([0, 10]), chance.choice([0, 20]), "[" + names[0], "[d"]),
        (scripts.HOLDS, KEYS),
        (UNSETTLED, [10]),
        (scripts.GONE, [key, publish_try, "other", "x.0"]),
        (scripts.HEARD, [member]),
        (scripts.FENCE, [member]),
        (scripts.WHO, []),
    ]
    return chance.choice(calls)


def comparable(reply: Any) -> Any:
    """Without instants; and what is a mapping to its reader, without an order."""
    if isinstance(reply, list):
        return [comparable(one) for one in reply]
    if isinstance(reply, bytes):
        lines = _INSTANT.sub(b"<now>", reply).split(b"\n")
        return {*zip(lines[::2], lines[1::2], strict=False)} if len(lines) > 1 else lines[0]
    return reply


@pytest.mark.parametrize("seed", range(4))
async def test_it_answers_as_redis_does(seed: int, redis: RedisServer) -> None:
    chance = random.Random(seed)
    stand_in, links = StandIn("a", lambda: time.time() - 1_800_000_000), Links(redis.url)
    real = (await links.run(scripts.MAKE, PREFIX))[1]
    ours = stand_in.run(scripts.MAKE.text, PREFIX, ())[1]
    for step in range(400):
        script, arguments = drawn(chance)
        known = chance.random() > 0.02
        expected = await links.run(script, PREFIX, real if known else b"another", *arguments)
        found = stand_in.run(script.text, PREFIX, [ours if known else b"another", *arguments])
        if script is scripts.WHO:
            expected, found = expected[1:], found[1:]
        elif script is UNSETTLED:  # in order of time, which is not the same
            expected, found = sorted(expected[-1]), sorted(found[-1])
        assert comparable(found) == comparable(expected), f"step {step}: {script.text[-300:]} {arguments}"
    await links.close()

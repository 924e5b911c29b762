"""Redis as an overlay, held to the contract. One that may drop entries is none: nobody joins it or names it, and reads
say that they are not exact.
"""

import time

import pytest

from shared.config.findings import FAIL, WARN
from shared.redis.scripts import WHO, Script
from shared.redis.server import PROBE, findings_of, flaw_of_policy
from tests.contracts.entries import EntriesContract, Written
from tests.emulators.redis_fixtures import (
    Fleet,
    RedisServer,
    Start,
    accept,
    exact,
    keys,
    names_in,
    until_exact,
    until_inexact,
)

EARLIER = """
local due = redis.call('ZRANGE', KEYS[1] .. 'due', 0, -1)
for _, key in ipairs(due) do
  redis.call('ZINCRBY', KEYS[1] .. 'due', -ARGV[1], key)
  for _, field in ipairs(redis.call('HKEYS', KEYS[1] .. 'k:' .. key)) do
    if string.sub(field, 1, 1) == 'r' then
      local record = redis.call('HGET', KEYS[1] .. 'k:' .. key, field)
      local owner, seq, born, flags = string.match(record, '^(%S+) (%S+) (%S+) (%S+)$')
      born = string.format('%.0f', born - ARGV[1])
      redis.call('HSET', KEYS[1] .. 'k:' .. key, field, owner .. ' ' .. seq .. ' ' .. born .. ' ' .. flags)
    end
  end
end
"""
"""Its clock can't be turned; entries can be made older."""


class TestRedisOverlay(EntriesContract):
    @pytest.fixture
    async def written(self, redis: RedisServer, fleet: Fleet) -> Written:
        async def later(seconds: float) -> None:
            prefix = f"countersink:{(await fleet.fleet()).overlay.nonce}:"
            redis.ask("EVAL", EARLIER, "1", prefix, str(int(seconds * 1000)))

        one, two = await fleet.process(), await fleet.process()
        await until_exact(one, two)
        return Written(one, two, exact=True, later=later)


POLICY = ("CONFIG", "SET", "maxmemory-policy")
SAID = "set its maxmemory-policy to noeviction"


async def test_nobody_names_a_server_that_evicts_and_the_log_says_what_to_do(
    start_redis: Start, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    evicting = start_redis("--maxmemory-policy", "allkeys-lru", "--maxmemory", "5mb")
    one, two = await fleet.process(evicting.url), await fleet.process(evicting.url)
    await accept(one, "e")
    assert await names_in(one) == (keys("e"), False)
    assert not await exact(two)
    assert (await fleet.fleet()).overlay.epoch == 0
    assert next(one.message for one in caplog.records if SAID in one.message).startswith("Redis has max")
    assert evicting.ask("DBSIZE") == "0"
    evicting.ask(*POLICY, "noeviction")
    await until_exact(one, two)
    assert await names_in(two) == (keys("e"), True)


async def test_a_policy_that_is_changed_meanwhile_is_noticed_and_what_may_be_missing_is_told_anew(
    redis: RedisServer, fleet: Fleet
) -> None:
    """By every member with its next step: once a second."""
    one, two = await fleet.process(), await fleet.process()
    await accept(one, "e1")
    await accept(two, "e2")
    await until_exact(one, two)
    before = (await fleet.fleet()).overlay
    began = time.monotonic()
    redis.ask(*POLICY, "allkeys-lfu")
    await until_inexact(one, two)
    assert time.monotonic() - began < 5.0
    await accept(one, "e3")
    redis.ask("DEL", f"countersink:{before.nonce}:c:a")  # as it does if memory is short
    await fleet.until(lambda now: not any(map(now.joined, now.members.values())))
    redis.ask(*POLICY, "noeviction")
    await until_exact(one, two)
    for process in (one, two):
        assert await names_in(process) == (keys("e1", "e2", "e3"), True)
    assert (await fleet.fleet()).overlay.nonce != before.nonce


async def test_who_leaves_a_server_that_evicts_owes_what_is_pending(redis: RedisServer, fleet: Fleet) -> None:
    one, two = await fleet.process(), await fleet.process()
    await accept(one, "e1")
    await until_exact(one, two)
    redis.ask(*POLICY, "allkeys-random")
    await until_inexact(one, two)
    await fleet.leave(one)
    redis.ask(*POLICY, "noeviction")
    for _ in range(3):
        await two._step()
    assert not await exact(two), "what the other one had accepted may have been dropped"


async def test_a_server_that_does_not_say_is_believed_with_a_warning(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    silent = Script(WHO.text.replace("'INFO', 'memory'", "'INFO', 'clients'"))
    assert silent.text != WHO.text
    monkeypatch.setattr("shared.redis.server.WHO", silent)
    one = await fleet.process()
    await accept(one, "e")
    await until_exact(one)
    for _ in range(3):
        await one._step()
    (warned,) = [record for record in caplog.records if "does not say" in record.message]
    assert SAID in warned.message


async def test_doctor_says_what_is_known(
    redis: RedisServer, start_redis: Start, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = (await fleet.process(member=False))._server
    assert await findings_of(server) == []
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    (found,) = await findings_of(server)
    assert found.mark == FAIL
    assert "it is full: raise its maxmemory" in found.said
    redis.ask("CONFIG", "SET", "maxmemory", "0")
    assert await findings_of(server) == []
    assert redis.ask("TTL", PROBE) in {"9", "10"}
    redis.ask(*POLICY, "allkeys-lru")
    (found,) = await findings_of(server)
    assert found.mark == FAIL
    assert SAID in found.said
    plain = server.plain

    async def without(*_: object) -> bytes:
        info: bytes = await plain("INFO")
        return info.replace(b"maxmemory_policy", b"something")

    monkeypatch.setattr(server, "plain", without)
    (found,) = await findings_of(server)
    assert found.mark == WARN
    assert "does not say" in found.said


@pytest.mark.parametrize(
    ("policy", "good"),
    [("noeviction", True), ("volatile-lru", True), ("volatile-ttl", True), ("", True), ("allkeys-lru", False)],
)
def test_only_policies_that_can_drop_our_keys_are_refused(policy: str, good: bool) -> None:
    assert (flaw_of_policy(policy) is None) == good

"""Redis as an overlay, held to the contract."""

import pytest

from tests.contracts.entries import EntriesContract, Written
from tests.emulators.redis_fixtures import Fleet, RedisServer, until_exact

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

"""What runs inside Redis about who writes there: leases, epochs, and what flushers have seen."""

from typing import Final

from shared.redis.links import Script
from shared.redis.scripts import _ALIVE, _BEGIN, _SAME, _WRITE

_FLEET: Final = """
local function fleet()
  local orphans = 0
  local owners = redis.call('HGETALL', P .. 'owners')
  for i = 1, #owners, 2 do
    if redis.call('HEXISTS', MEMBERS, owners[i]) == 0 then orphans = orphans + owners[i + 1] end
  end
  local suspect = redis.call('HEXISTS', SERVER, 'suspect')
  return {'ok', now, orphans, suspect, redis.call('HGET', SERVER, 'top') or '0',
          redis.call('HGET', SERVER, 'arrived') or '0', redis.call('HGETALL', MEMBERS)}
end
"""

LOOK: Final = Script(
    _BEGIN
    + "local s = redis.call('HMGET', SERVER, 'run', 'epoch') return {now, s[1] == ARGV[1] and 1 or 0, s[2] or ''}"
)
"""run: the time, whether this run is known, and the epoch."""

EPOCH: Final = Script(
    _BEGIN
    + """
local there = redis.call('HMGET', SERVER, 'run', 'epoch', 'suspect', 'floor')
if there[1] == ARGV[1] or (there[2] or '') ~= ARGV[2] then return 0 end
for at = 7, #ARGV do redis.call('HSET', MEMBERS, ARGV[at], 0) end
for _, id in ipairs(redis.call('HKEYS', MEMBERS)) do redis.call('HSET', MEMBERS, id, 0) end
redis.call('HSET', SERVER, 'run', ARGV[1], 'epoch', ARGV[3], 'turn', 0, 'grace', text(now + ARGV[5]),
           'arrived', '0', 'floor', less(there[4] or '0', ARGV[6]) and ARGV[6] or there[4] or '0')
if ARGV[4] == '1' or there[3] then redis.call('HSET', SERVER, 'suspect', text(now)) end
return 1
"""
)
"""run, the epoch that was seen, a new one, whether something may be lost for good, grace (ms), floor, then members…"""

JOIN: Final = Script(
    _BEGIN
    + _SAME
    + _WRITE
    + _FLEET
    + """
if tonumber(ARGV[4]) <= now then return {'lapsed'} end
local last = 7 + ARGV[7]
redis.call('HSET', MEMBERS, ARGV[3], ARGV[4])
for at = 8, last do redis.call('HDEL', MEMBERS, ARGV[at]) end
if less(redis.call('HGET', SERVER, 'floor'), ARGV[5]) then redis.call('HSET', SERVER, 'floor', ARGV[5]) end
if tonumber(ARGV[6]) > tonumber(redis.call('HGET', SERVER, 'arrived') or '0') then
  redis.call('HSET', SERVER, 'arrived', ARGV[6])
end
if last < #ARGV then write(last + 1, ARGV[3], '1', true) end
return fleet()
"""
)
"""run, epoch, member, until, floor, its number in this epoch, how many ids to forget, these, then as in REWRITE."""

RENEW: Final = Script(
    _BEGIN
    + _ALIVE
    + _FLEET
    + """
if tonumber(until_) < tonumber(ARGV[4]) then redis.call('HSET', MEMBERS, ARGV[3], ARGV[4]) end
return fleet()
"""
)
"""run, epoch, member, until. Absolute, so that one that arrives late gives no more than what its sender knows of."""

LEAVE: Final = Script(_BEGIN + "for at = 2, #ARGV do redis.call('HDEL', MEMBERS, ARGV[at]) end return 1")
"""run, then ids…: nothing of theirs is unwritten."""

DROP: Final = Script(
    _BEGIN
    + """
if redis.call('HGET', MEMBERS, ARGV[2]) ~= ARGV[3] then return 0 end
redis.call('HDEL', MEMBERS, ARGV[2])
if ARGV[4] == '1' then redis.call('HSET', SERVER, 'suspect', text(now)) end
return 1
"""
)
"""run, member, its lease, whether something of it may be lost. It must have been fenced."""

TRUST: Final = Script(
    _BEGIN
    + """
if redis.call('HDEL', SERVER, 'suspect') == 1 then redis.call('HINCRBY', SERVER, 'turn', 1) end
return 1
"""
)
"""run: nothing that was lost is unapplied. Bases of before are void: they may lack it."""

REPORT: Final = Script(
    _BEGIN
    + """
redis.call('HSET', P .. 'flushers', ARGV[2], text(now) .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])
local suspect = tonumber(redis.call('HGET', SERVER, 'suspect') or '')
local window, clear = tonumber(ARGV[5]), true
local reports = redis.call('HGETALL', P .. 'flushers')
for i = 1, #reports, 2 do
  local heard, span, oldest = string.match(reports[i + 1], '^(%S+) (%S+) (%S+)$')
  if now - heard > window then
    redis.call('HDEL', P .. 'flushers', reports[i])
  elseif tonumber(span) < window or (suspect and tonumber(oldest) <= suspect + ARGV[6]) then
    clear = false
  end
end
if suspect and clear then
  redis.call('HDEL', SERVER, 'suspect')
  redis.call('HINCRBY', SERVER, 'turn', 1)
end
return 1
"""
)
"""run, flusher, for how long it has reported (ms), the oldest it saw in the window, window (ms), allowance (ms)."""

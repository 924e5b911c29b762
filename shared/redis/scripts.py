"""What runs inside Redis, each as one step. Keys are made from the prefix, since there is no cluster.

server    hash: run, epoch, turn (bases of an earlier one are void), suspect and grace (both ms),
          floor (of all counters), top (the greatest floor of any), arrived (members ever, in this epoch)
members   hash: member id -> until when its lease is good (ms); 0 if it is of an earlier epoch and has not come back
c:NAME    hash of a counter: v (version), f (floor), eATTEMPT -> "seq flags receipt-key body"
k:KEY     hash of a receipt key: rATTEMPT -> "owner seq born flags" (confirmed and late, "10"), pATTEMPT -> payload,
          which is an object of counters and bodies
names     sorted set of counters with an entry;  due  sorted set of receipt keys, by when to settle them
owners    hash: member id -> confirmed entries of its own;  flushers  hash: id -> "heard since oldest"
version   counter
"""

from typing import Final

from shared.redis.links import Script

FLOORS_KEPT: Final = 180_000
"""Milliseconds a floor outlives the last entry of its counter: longer than bases live and snapshots take."""
PATIENCE: Final = 10_000
"""Milliseconds in which readers, or flushers, may settle an entry before it is asked for."""
ORPHANS_KEPT: Final = 600_000
"""Milliseconds an unconfirmed entry lives that nobody withdraws. It adds to nothing; confirming would make it anew."""
MOST_SHOWN: Final = 20_000
"""Entries in one view. Flushers have stood still for long where there are more; others wait while they are told."""
MOST_WORK: Final = 5_000
"""Entries changed in one step, about: others wait meanwhile."""

_BEGIN: Final = """
local P = KEYS[1]
local SERVER, MEMBERS = P .. 'server', P .. 'members'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(number) return string.format('%.0f', number) end
local function less(a, b) -- whole numbers in digits, which may be longer than a float is exact
  if #a ~= #b then return #a < #b end
  return a < b
end
"""

_SAME: Final = """
local there = redis.call('HMGET', SERVER, 'run', 'epoch')
if there[1] ~= ARGV[1] or there[2] ~= ARGV[2] then return {'epoch'} end
"""

_ALIVE: Final = (
    _SAME
    + """
local until_ = redis.call('HGET', MEMBERS, ARGV[3])
if not until_ or tonumber(until_) <= now then return {'lapsed'} end
"""
)

_REMOVE: Final = """
redis.call('DEL', P .. 'none') -- a step that has begun to write may go on when memory is short
local version
local work = 0
local function remove(key, attempt, floor)
  local owner, confirmed = string.match(redis.call('HGET', P .. 'k:' .. key, 'r' .. attempt), '^(%S+) %S+ %S+ (%d)')
  for name in pairs(cjson.decode(redis.call('HGET', P .. 'k:' .. key, 'p' .. attempt))) do
    local counter = P .. 'c:' .. name
    redis.call('HDEL', counter, 'e' .. attempt)
    version = version or redis.call('INCR', P .. 'version')
    local left = redis.call('HMGET', counter, 'f', 'v')
    if floor and less(left[1] or '0', floor) then
      redis.call('HSET', counter, 'v', version, 'f', floor)
    else
      redis.call('HSET', counter, 'v', version, 'f', left[1] or '0')
    end
    if redis.call('HLEN', counter) == 2 then
      redis.call('ZREM', P .. 'names', name)
      redis.call('PEXPIRE', counter, FLOORS_KEPT)
    end
    work = work + 1
  end
  if confirmed == '1' and redis.call('HINCRBY', P .. 'owners', owner, -1) <= 0 then
    redis.call('HDEL', P .. 'owners', owner)
  end
  redis.call('HDEL', P .. 'k:' .. key, 'r' .. attempt, 'p' .. attempt)
  if redis.call('EXISTS', P .. 'k:' .. key) == 0 then redis.call('ZREM', P .. 'due', key) end
end
""".replace("FLOORS_KEPT", str(FLOORS_KEPT))

_WRITE: Final = """
local function write(first, owner, confirmed, again)
  local version = redis.call('INCRBY', P .. 'version', #ARGV)
  for at = first, #ARGV, 3 do
    local key, attempt, payload = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local record = redis.call('HGET', P .. 'k:' .. key, 'r' .. attempt)
    local seq, born, c, l = text(version - #ARGV + at), text(now), confirmed, '0'
    local same = false
    if record then
      local before, was_c, was_l
      before, seq, born, was_c, was_l = string.match(record, '^(%S+) (%S+) (%S+) (%d)(%d)$')
      same = was_c == '1' or confirmed == '0'
      c, l = was_c, was_l
      if not same then
        c = '1'
        if again then l = '1' end
      end
      if was_c == '1' and before ~= owner then
        if redis.call('HINCRBY', P .. 'owners', before, -1) <= 0 then redis.call('HDEL', P .. 'owners', before) end
        redis.call('HINCRBY', P .. 'owners', owner, 1)
      elseif was_c == '0' and c == '1' then
        redis.call('HINCRBY', P .. 'owners', owner, 1)
      end
    elseif confirmed == '1' then
      l = '1' -- it is gone, or never was there: a base may not have asked for it
      redis.call('HINCRBY', P .. 'owners', owner, 1)
    end
    redis.call('HSET', P .. 'k:' .. key, 'r' .. attempt, owner .. ' ' .. seq .. ' ' .. born .. ' ' .. c .. l)
    if not record then redis.call('HSET', P .. 'k:' .. key, 'p' .. attempt, payload) end
    if not same then
      local head, names = seq .. ' ' .. c .. l .. ' ' .. key .. ' ', {}
      for name, body in pairs(cjson.decode(payload)) do
        local counter = P .. 'c:' .. name
        local new = redis.call('HSET', counter, 'v', version, 'e' .. attempt, head .. body)
        if new == 1 then redis.call('PERSIST', counter) end
        if new > 0 then
          names[#names + 1] = 0
          names[#names + 1] = name
        end
      end
      if #names > 0 then redis.call('ZADD', P .. 'names', unpack(names)) end
      if not record then redis.call('ZADD', P .. 'due', 'NX', now + PATIENCE, key) end
    end
  end
end
""".replace("PATIENCE", str(PATIENCE))

WRITE: Final = Script(_BEGIN + _ALIVE + _WRITE + "write(5, ARGV[3], ARGV[4], false) return {'ok'}")
"""run, epoch, member, confirmed, then (key, attempt, payload)… Only under the member's own live lease."""

REWRITE: Final = Script(_BEGIN + _SAME + _WRITE + "write(4, ARGV[3], '1', true) return {'ok'}")
"""run, epoch, owner, then as above: what a member answered that is coming back. No lease: nobody says exact now."""

WITHDRAW: Final = Script(
    _BEGIN
    + _REMOVE
    + """
for at = 2, #ARGV, 2 do
  if redis.call('HEXISTS', P .. 'k:' .. ARGV[at], 'r' .. ARGV[at + 1]) == 1 then remove(ARGV[at], ARGV[at + 1]) end
end
return {'ok'}
"""
)
"""run, then (key, attempt)…"""

SETTLE: Final = Script(
    _BEGIN
    + _REMOVE
    + """
if less(redis.call('HGET', SERVER, 'top') or '0', ARGV[2]) then redis.call('HSET', SERVER, 'top', ARGV[2]) end
for at = 3, #ARGV do
  for _, field in ipairs(redis.call('HKEYS', P .. 'k:' .. ARGV[at])) do
    if string.sub(field, 1, 1) == 'r' then remove(ARGV[at], string.sub(field, 2), ARGV[2]) end
  end
  if work >= MOST_WORK then return at - 2 end
end
return #ARGV - 2
""".replace("MOST_WORK", str(MOST_WORK))
)
"""run, floor, then keys… Answers how many of them are done."""

RAISE: Final = Script(
    _BEGIN
    + """
redis.call('DEL', P .. 'none') -- as above
if less(redis.call('HGET', SERVER, 'top') or '0', ARGV[2]) then redis.call('HSET', SERVER, 'top', ARGV[2]) end
local counter = P .. 'c:' .. ARGV[3]
if less(redis.call('HGET', counter, 'f') or '0', ARGV[2]) then
  redis.call('HSET', counter, 'v', redis.call('INCR', P .. 'version'), 'f', ARGV[2])
  if redis.call('HLEN', counter) == 2 then redis.call('PEXPIRE', counter, FLOORS_KEPT) end
end
return {'ok'}
""".replace("FLOORS_KEPT", str(FLOORS_KEPT))
)
"""run, floor, counter."""

VIEW: Final = Script(
    _BEGIN
    + """
redis.call('DEL', P .. 'none') -- a replica would refuse it, and must not say that it sees all
local server = redis.call('HMGET', SERVER, 'run', 'epoch', 'turn', 'suspect', 'grace', 'floor')
if server[1] ~= ARGV[1] then return {'epoch'} end
local exact = 1
if server[4] or tonumber(server[5]) > now then exact = 0 end
for _, until_ in ipairs(redis.call('HVALS', MEMBERS)) do
  if tonumber(until_) <= now then exact = 0 end
end
local reply = {'ok', server[2] .. '/' .. server[3], exact, server[6]}
local known, shown = server[2] == ARGV[2], 0
for at = 3, #ARGV, 2 do
  local counter = P .. 'c:' .. ARGV[at]
  local version = redis.call('HGET', counter, 'v')
  if version and (not known or version ~= ARGV[at + 1]) then
    shown = shown + redis.call('HLEN', counter)
    if shown > MOST_SHOWN then
      reply[#reply + 1] = 'many'
    else
      reply[#reply + 1] = table.concat(redis.call('HGETALL', counter), '\\n') -- read much faster than an array
    end
  else
    reply[#reply + 1] = version or ''
  end
end
return reply
""".replace("MOST_SHOWN", str(MOST_SHOWN))
)
"""run, epoch, then (counter, version known)… One instant: whether all is seen, and what."""

HOLDS: Final = Script(
    _BEGIN
    + """
local found = {}
for at = 2, #ARGV do found[at - 1] = redis.call('EXISTS', P .. 'k:' .. ARGV[at]) end
return found
"""
)
"""run, then keys…"""

UNSETTLED: Final = Script(
    _BEGIN
    + _REMOVE
    + """
local due = redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', now, 'LIMIT', 0, ARGV[2])
local keys = {}
for _, key in ipairs(due) do
  local age, left = PATIENCE, 0
  for _, field in ipairs(redis.call('HKEYS', P .. 'k:' .. key)) do
    if string.sub(field, 1, 1) == 'r' then
      local born, confirmed = string.match(redis.call('HGET', P .. 'k:' .. key, field), '^%S+ %S+ (%S+) (%d)')
      if confirmed == '0' and now - born > ORPHANS_KEPT then
        remove(key, string.sub(field, 2))
      else
        age, left = math.max(age, now - born), left + 1
      end
    end
  end
  if left == 0 then
    redis.call('ZREM', P .. 'due', key)
  else
    redis.call('ZADD', P .. 'due', now + age, key)
    keys[#keys + 1] = key
  end
end
return keys
""".replace("PATIENCE", str(PATIENCE)).replace("ORPHANS_KEPT", str(ORPHANS_KEPT))
)
"""run, limit."""

GONE: Final = Script(
    _BEGIN
    + _SAME
    + """
local gone = {}
for at = 3, #ARGV, 2 do
  if redis.call('HEXISTS', P .. 'k:' .. ARGV[at], 'r' .. ARGV[at + 1]) == 0 then gone[#gone + 1] = (at - 3) / 2 end
end
return {'ok', redis.call('HGET', SERVER, 'top') or '0', gone}
"""
)
"""run, epoch, then (key, attempt)…: the places of those that were settled, and a floor not below theirs."""

"""All scripts that run inside Redis, each as one atomic step: entries, floors, epochs, members. They make keys from the
prefix, as there is no cluster.
"""

from hashlib import sha1
from typing import Final


class Script:
    """A script that runs inside Redis as one atomic step, called by its hash."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()


FLOORS_KEPT: Final = 180_000
"""Milliseconds that a floor outlives the last entry of its counter. Then the floor of all counters takes its place."""
SETTLE_WITHIN_MS: Final = 20_000
"""Milliseconds for readers or flushers to settle an entry before `UNSETTLED` names it."""
UNCONFIRMED_KEPT: Final = 900_000
"""Milliseconds that an unconfirmed entry lives, or a mark. It adds to no value, and confirming it later would make it
again. The commit of a mark happened in the first 11 minutes (`words.MARKED`) or never, and what was read before that
lives for another minute.
"""
MOST_IN_VIEW: Final = 20_000
"""The most entries in one answer. There are more only if flushers did not work for long. Other clients would wait."""
MOST_UNSURE: Final = 1_000
"""The most receipt keys of entries so old that they may have been applied. With as many or more, nothing is exact."""
MOST_WORK: Final = 5_000
"""About how many entries one step changes. Other clients of Redis wait meanwhile."""

SERVER: Final = """
local P = KEYS[1]
local EPOCH = P .. 'epoch'
local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
local function said(name) return string.match(info, name .. ':([^\\r\\n]*)') or '' end
local identity = said('run_id') .. '/' .. said('master_replid')
local master = said('role') == 'master'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(number) return string.format('%.0f', number) end
local function less(a, b) -- compares digits, since a float is not exact for numbers of that size
  if #a ~= #b then return #a < #b end
  return a < b
end
"""

BEGIN: Final = (
    SERVER
    + """
if not master or identity ~= ARGV[1] or redis.call('EXISTS', EPOCH) == 0 then return {'bad'} end
"""
)
"""Answers `bad` unless this is the server that the fleet has named, a master, and holds the epoch."""

_REMOVE: Final = """
redis.call('DEL', P .. 'none') -- Redis lets a script that has begun to write go on when memory is short
local version
local work = 0
local function remove(key, try, floor)
  local owner, confirmed = string.match(redis.call('HGET', P .. 'k:' .. key, 'r' .. try), '^(%S+) %S+ %S+ (%d)')
  for name in pairs(cjson.decode(redis.call('HGET', P .. 'k:' .. key, 'p' .. try))) do
    local counter = P .. 'c:' .. name
    redis.call('HDEL', counter, 'e' .. try)
    version = version or redis.call('INCR', P .. 'version')
    local left = redis.call('HMGET', counter, 'f', 'v')
    if floor and less(left[1] or '0', floor) then
      redis.call('HSET', counter, 'v', version, 'f', floor)
    else
      redis.call('HSET', counter, 'v', version, 'f', left[1] or '0')
    end
    if redis.call('HLEN', counter) == 2 then
      redis.call('ZREM', P .. 'names', name)
      redis.call('ZADD', P .. 'floors', now, name)
    end
    work = work + 1
  end
  if confirmed == '1' and redis.call('HINCRBY', P .. 'owners', owner, -1) <= 0 then
    redis.call('HDEL', P .. 'owners', owner)
  end
  redis.call('HDEL', P .. 'k:' .. key, 'r' .. try, 'p' .. try)
  if redis.call('EXISTS', P .. 'k:' .. key) == 0 then
    redis.call('ZREM', P .. 'due', key)
    redis.call('ZREM', P .. 'old', key)
  end
end
local function tries(key)
  local found = {}
  for _, field in ipairs(redis.call('HKEYS', P .. 'k:' .. key)) do
    if string.sub(field, 1, 1) == 'r' then found[#found + 1] = string.sub(field, 2) end
  end
  return found
end
"""

WRITE: Final = Script(
    BEGIN
    + """
local owner, confirmed, again = ARGV[2], ARGV[3], ARGV[4] == '1'
local was_fenced = 0
if again then
  was_fenced = redis.call('SREM', P .. 'fenced', owner)
elseif redis.call('SISMEMBER', P .. 'fenced', owner) == 1 then
  return {'fenced'}
end
local version = redis.call('INCRBY', P .. 'version', #ARGV)
for at = 5, #ARGV, 4 do
  local key, try, published, payload = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local record = redis.call('HGET', P .. 'k:' .. key, 'r' .. try)
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
      redis.call('HINCRBY', P .. 'owners', owner, 1)
    end
  elseif confirmed == '1' then
    l = '1' -- it is gone or never was there, so a base may not have asked for its receipt
    redis.call('HINCRBY', P .. 'owners', owner, 1)
  end
  redis.call('HSET', P .. 'k:' .. key, 'r' .. try, owner .. ' ' .. seq .. ' ' .. born .. ' ' .. c .. l)
  if not record then redis.call('HSET', P .. 'k:' .. key, 'p' .. try, payload) end
  if not same then
    local head, names = seq .. ' ' .. c .. l .. ' ' .. key .. ' ', {}
    for name, body in pairs(cjson.decode(payload)) do
      local counter = P .. 'c:' .. name
      if redis.call('HSET', counter, 'v', version, 'e' .. try, head .. body) > 0 then
        names[#names + 1] = 0
        names[#names + 1] = name
        redis.call('ZREM', P .. 'floors', name)
      end
    end
    if #names > 0 then redis.call('ZADD', P .. 'names', unpack(names)) end
    if not record then
      redis.call('ZADD', P .. 'due', 'NX', now + PATIENCE, key)
      redis.call('ZADD', P .. 'old', 'NX', published, key)
    end
  end
end
return {'ok', was_fenced}
""".replace("PATIENCE", str(SETTLE_WITHIN_MS))
)
"""Arguments: identity, member, confirmed, again (it enters what it answered before, which ends a fence), then (key,
try, published, payload)… Answers whether the member was fenced until then.
"""

WITHDRAW: Final = Script(
    BEGIN
    + _REMOVE
    + """
for at = 2, #ARGV, 2 do
  if redis.call('HEXISTS', P .. 'k:' .. ARGV[at], 'r' .. ARGV[at + 1]) == 1 then remove(ARGV[at], ARGV[at + 1]) end
end
return {'ok'}
"""
)
"""Arguments: identity, then (key, try)…"""

SETTLE: Final = Script(
    BEGIN
    + _REMOVE
    + """
if less(redis.call('HGET', EPOCH, 'top'), ARGV[2]) then redis.call('HSET', EPOCH, 'top', ARGV[2]) end
for at = 3, #ARGV do
  for _, try in ipairs(tries(ARGV[at])) do remove(ARGV[at], try, ARGV[2]) end
  if work >= MOST_WORK then return {'ok', at - 2} end
end
return {'ok', #ARGV - 2}
""".replace("MOST_WORK", str(MOST_WORK))
)
"""Arguments: identity, floor, then keys… Answers how many of the keys are done."""

RAISE: Final = Script(
    BEGIN
    + _REMOVE
    + """
if less(redis.call('HGET', EPOCH, 'top'), ARGV[2]) then redis.call('HSET', EPOCH, 'top', ARGV[2]) end
for _, try in ipairs(tries(ARGV[3])) do remove(ARGV[3], try, ARGV[2]) end
for at = 4, #ARGV do
  local counter = P .. 'c:' .. ARGV[at]
  if less(redis.call('HGET', counter, 'f') or '0', ARGV[2]) then
    redis.call('HSET', counter, 'v', redis.call('INCR', P .. 'version'), 'f', ARGV[2])
    if redis.call('HLEN', counter) == 2 then redis.call('ZADD', P .. 'floors', now, ARGV[at]) end
  end
end
return {'ok'}
"""
)
"""Arguments: identity, floor, the receipt key of a mark, then counters… Removes the mark, raises the floors."""

FORGET: Final = Script(
    BEGIN
    + _REMOVE
    + """
local floor = redis.call('HGET', EPOCH, 'floor')
for _, name in ipairs(redis.call('ZRANGEBYSCORE', P .. 'floors', '-inf', now - FLOORS_KEPT, 'LIMIT', 0, MOST)) do
  local own = redis.call('HGET', P .. 'c:' .. name, 'f') or '0'
  if less(floor, own) then
    floor = own
    redis.call('HSET', EPOCH, 'floor', floor)
  end
  redis.call('DEL', P .. 'c:' .. name)
  redis.call('ZREM', P .. 'floors', name)
end
for _, key in ipairs(redis.call('ZRANGEBYSCORE', P .. 'old', '-inf', ARGV[2], 'LIMIT', 0, MOST)) do
  for _, try in ipairs(tries(key)) do remove(key, try) end
end
return {'ok'}
""".replace("FLOORS_KEPT", str(FLOORS_KEPT)).replace("MOST", "1000")
)
"""Arguments: identity, a time by the store's clock (ms). Removes what was published before it, which is applied or
never will be. Also removes old floors, after it has raised the floor of all counters to the highest of them.
"""

_SHOW: Final = """
local oldest = redis.call('ZRANGE', P .. 'old', 0, 0, 'WITHSCORES')
if oldest[1] and tonumber(oldest[2]) < tonumber(ARGV[2]) then return {'old'} end
local unsure = {}
if oldest[1] and tonumber(oldest[2]) <= tonumber(ARGV[3]) then
  unsure = redis.call('ZRANGEBYSCORE', P .. 'old', '-inf', ARGV[3], 'LIMIT', 0, MOST_UNSURE)
end
local reply, shown = {'ok', redis.call('HGET', EPOCH, HIGHEST), unsure}, 0
local function show(counter)
  shown = shown + redis.call('HLEN', counter)
  if shown > MOST_IN_VIEW then
    reply[#reply + 1] = 'many'
  else
    reply[#reply + 1] = table.concat(redis.call('HGETALL', counter), '\\n') -- read much faster than an array
  end
end
""".replace("MOST_IN_VIEW", str(MOST_IN_VIEW)).replace("MOST_UNSURE", str(MOST_UNSURE))

VIEW: Final = Script(
    BEGIN
    + _SHOW.replace("HIGHEST", "'floor'")
    + """
for at = 4, #ARGV, 2 do
  local counter = P .. 'c:' .. ARGV[at]
  local version = redis.call('HGET', counter, 'v')
  if version and version ~= ARGV[at + 1] then
    show(counter)
  else
    reply[#reply + 1] = version or ''
  end
end
return reply
"""
)
"""Arguments: identity, a time as for FORGET, another such time, then (counter, known version)… Answers `old` if
FORGET has to run first. Otherwise the third answer is the receipt keys of what was published up to the other time.
"""

UNDER: Final = Script(
    BEGIN
    + _SHOW.replace("HIGHEST", "'top'")
    + """
for at = 4, #ARGV, 2 do
  for _, name in ipairs(redis.call('ZRANGEBYLEX', P .. 'names', ARGV[at], ARGV[at + 1])) do
    reply[#reply + 1] = name
    show(P .. 'c:' .. name)
    shown = shown - 2 -- the floor and the version are no entries
    if reply[#reply] == 'many' then return {'many'} end
  end
end
return reply
"""
)
"""Arguments: identity and two times as for VIEW, then (first, last name)… as for NAMES. Answers as VIEW does, but with
the highest floor of any counter, and before the entries of each counter that has some its name; or `many`.
"""

HOLDS: Final = Script(
    BEGIN
    + """
local found = {}
for at = 2, #ARGV do found[at - 1] = redis.call('EXISTS', P .. 'k:' .. ARGV[at]) end
return {'ok', found}
"""
)
"""Arguments: identity, then keys…"""

UNSETTLED: Final = Script(
    BEGIN
    + _REMOVE
    + """
local due = redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', now, 'LIMIT', 0, ARGV[2])
local keys = {}
for _, key in ipairs(due) do
  local age, left = PATIENCE, 0
  for _, try in ipairs(tries(key)) do
    local born, confirmed = string.match(redis.call('HGET', P .. 'k:' .. key, 'r' .. try), '^%S+ %S+ (%S+) (%d)')
    if confirmed == '0' and now - born > UNCONFIRMED_KEPT then
      remove(key, try)
    else
      age, left = math.max(age, now - born), left + 1
    end
  end
  if left > 0 then
    redis.call('ZADD', P .. 'due', now + age, key)
    keys[#keys + 1] = key
  else
    redis.call('ZREM', P .. 'due', key)
  end
end
return {'ok', keys}
""".replace("PATIENCE", str(SETTLE_WITHIN_MS)).replace("UNCONFIRMED_KEPT", str(UNCONFIRMED_KEPT))
)
"""Arguments: identity, limit."""

GONE: Final = Script(
    BEGIN
    + """
local gone = {}
for at = 2, #ARGV, 2 do
  if redis.call('HEXISTS', P .. 'k:' .. ARGV[at], 'r' .. ARGV[at + 1]) == 0 then gone[#gone + 1] = (at - 2) / 2 end
end
return {'ok', redis.call('HGET', EPOCH, 'top'), gone}
"""
)
"""Arguments: identity, then (key, try)… Answers the places of those settled, and a floor not below theirs."""


WHO: Final = Script(
    SERVER
    + """
local memory = redis.pcall('INFO', 'memory')
local policy = type(memory) == 'string' and string.match(memory, 'maxmemory_policy:([^\\r\\n]*)') or ''
return {identity, master and 1 or 0, redis.call('EXISTS', EPOCH), policy}
"""
)
"""No arguments. Answers which server this is, whether it takes writes, whether it holds the epoch of the prefix, and
what it does when its memory is full (empty if it does not say).
"""

MAKE: Final = Script(
    SERVER
    + """
if not master then return {'bad'} end
redis.call('HSET', EPOCH, 'floor', '0', 'top', '0')
return {'ok', identity}
"""
)
"""No arguments. Makes the epoch of the prefix, which no process uses yet."""

HEARD: Final = Script(
    BEGIN
    + """
if redis.call('SISMEMBER', P .. 'fenced', ARGV[2]) == 1 then return {'fenced'} end
redis.call('HSET', P .. 'seen', ARGV[2], text(now))
return {'ok', redis.call('HGETALL', P .. 'seen')}
"""
)
"""Arguments: identity, member. Notes that the member lives, and answers when each member was last heard."""

FENCE: Final = Script(
    BEGIN
    + """
redis.call('SADD', P .. 'fenced', ARGV[2])
redis.call('HDEL', P .. 'seen', ARGV[2])
return {'ok', tonumber(redis.call('HGET', P .. 'owners', ARGV[2]) or '0')}
"""
)
"""Arguments: identity, member. Refuses its writes until it enters all that it has. Answers how many confirmed entries
it has.
"""
NAMES: Final = Script(
    BEGIN
    + """
return {'ok', redis.call('ZRANGEBYLEX', P .. 'names', ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])}
"""
)
"""Arguments: identity, the first and the last name as ZRANGEBYLEX has them, how many names or -1 for all."""

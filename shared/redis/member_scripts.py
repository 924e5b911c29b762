"""The scripts in Redis that are about the server itself, its epoch, and the members that write there."""

from typing import Final

from shared.redis.entry_scripts import BEGIN, SERVER
from shared.redis.links import Script

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

"""What a Redis holds, and the few commands that the overlay's scripts call. Pure."""

from bisect import insort
from collections.abc import Callable, Sequence
from typing import Any, Final

Reply = int | bytes | list[Any] | None
"""What a command answers, before Lua or a client sees it."""


class WrongCallError(Exception):
    """Redis would refuse the command, or this stand-in does not know it."""


class SortedSet:
    """Members by score, then by name."""

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self._order: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self.scores)

    def put(self, member: bytes, score: float) -> None:
        self.drop(member)
        self.scores[member] = score
        insort(self._order, (score, member))

    def drop(self, member: bytes) -> bool:
        if member not in self.scores:
            return False
        self._order.remove((self.scores.pop(member), member))
        return True

    def between(self, low: float, high: float) -> list[bytes]:
        return [member for score, member in self._order if low <= score <= high]

    def ordered(self) -> list[tuple[float, bytes]]:
        return self._order


class Keys:
    """All keys of one server. A command that is not listed here fails loudly."""

    def __init__(self) -> None:
        self.all: dict[bytes, Any] = {}

    def run(self, command: Sequence[bytes]) -> Reply:
        name, *rest = command
        handler = _COMMANDS.get(name.upper())
        if handler is None:
            raise WrongCallError(f"the stand-in for Redis does not know {name!r}; teach it, and test that")
        return handler(self, *rest)

    def _of(self, key: bytes, kind: type, *, make: bool = False) -> Any:
        found = self.all.get(key)
        if found is None:
            found = kind()
            if make:
                self.all[key] = found
        elif not isinstance(found, kind):
            raise WrongCallError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return found

    def _tidy(self, key: bytes) -> None:
        """A collection that is empty is no key."""
        if key in self.all and not self.all[key]:
            del self.all[key]

    def hset(self, key: bytes, *pairs: bytes) -> int:
        if len(pairs) % 2:
            raise WrongCallError("HSET takes pairs")
        held: dict[bytes, bytes] = self._of(key, dict, make=True)
        before = len(held)
        held.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(held) - before

    def hget(self, key: bytes, field: bytes) -> bytes | None:
        found: bytes | None = self._of(key, dict).get(field)
        return found

    def hmget(self, key: bytes, *fields: bytes) -> list[bytes | None]:
        held = self._of(key, dict)
        return [held.get(field) for field in fields]

    def hgetall(self, key: bytes) -> list[bytes]:
        return [part for pair in self._of(key, dict).items() for part in pair]

    def hdel(self, key: bytes, *fields: bytes) -> int:
        held = self._of(key, dict)
        gone = sum(held.pop(field, None) is not None for field in fields)
        self._tidy(key)
        return gone

    def hlen(self, key: bytes) -> int:
        return len(self._of(key, dict))

    def hkeys(self, key: bytes) -> list[bytes]:
        return [*self._of(key, dict)]

    def hexists(self, key: bytes, field: bytes) -> int:
        return int(field in self._of(key, dict))

    def hincrby(self, key: bytes, field: bytes, by: bytes) -> int:
        held = self._of(key, dict, make=True)
        value = int(held.get(field, b"0")) + int(by)
        held[field] = b"%d" % value
        return value

    def zadd(self, key: bytes, *rest: bytes) -> int:
        only_new = rest[0].upper() == b"NX"
        pairs = rest[1:] if only_new else rest
        held: SortedSet = self._of(key, SortedSet, make=True)
        before = len(held)
        for score, member in zip(pairs[::2], pairs[1::2], strict=True):
            if not (only_new and member in held.scores):
                held.put(member, float(score))
        return len(held) - before

    def zrem(self, key: bytes, *members: bytes) -> int:
        held: SortedSet = self._of(key, SortedSet)
        gone = sum([held.drop(member) for member in members])
        self._tidy(key)
        return gone

    def zrange(self, key: bytes, first: bytes, last: bytes, *rest: bytes) -> list[bytes]:
        found = self._of(key, SortedSet).ordered()[int(first) : int(last) + 1 or None]
        if rest == (b"WITHSCORES",):
            return [part for score, member in found for part in (member, _number(score))]
        return [member for _, member in found]

    def zrangebyscore(self, key: bytes, low: bytes, high: bytes, *rest: bytes) -> list[bytes]:
        found: list[bytes] = self._of(key, SortedSet).between(float(low), float(high))
        if rest:
            _, offset, limit = rest
            return found[int(offset) : int(offset) + int(limit)]
        return found

    def zrangebylex(self, key: bytes, low: bytes, high: bytes, *rest: bytes) -> list[bytes]:
        held, beyond = self._of(key, SortedSet), low[:1] == b"("
        found = [member for member in sorted(held.scores) if low[1:] <= member <= high[1:]]
        if beyond and found[:1] == [low[1:]]:
            del found[0]
        if rest:
            _, offset, limit = rest
            return found[int(offset) : int(offset) + int(limit)]
        return found

    def sadd(self, key: bytes, *members: bytes) -> int:
        held = self._of(key, set, make=True)
        before = len(held)
        held.update(members)
        return len(held) - before

    def srem(self, key: bytes, *members: bytes) -> int:
        held = self._of(key, set)
        gone = len(held & {*members})
        held -= {*members}
        self._tidy(key)
        return gone

    def sismember(self, key: bytes, member: bytes) -> int:
        return int(member in self._of(key, set))

    def incrby(self, key: bytes, by: bytes = b"1") -> int:
        value = int(self._of(key, bytes) or b"0") + int(by)
        self.all[key] = b"%d" % value
        return value

    def exists(self, *keys: bytes) -> int:
        return sum(key in self.all for key in keys)

    def delete(self, *keys: bytes) -> int:
        return sum(self.all.pop(key, None) is not None for key in keys)


def _number(score: float) -> bytes:
    return b"%d" % score if score == int(score) else b"%.17g" % score


_COMMANDS: Final[dict[bytes, Callable[..., Reply]]] = {
    b"HSET": Keys.hset,
    b"HGET": Keys.hget,
    b"HMGET": Keys.hmget,
    b"HGETALL": Keys.hgetall,
    b"HDEL": Keys.hdel,
    b"HLEN": Keys.hlen,
    b"HKEYS": Keys.hkeys,
    b"HEXISTS": Keys.hexists,
    b"HINCRBY": Keys.hincrby,
    b"ZADD": Keys.zadd,
    b"ZREM": Keys.zrem,
    b"ZRANGE": Keys.zrange,
    b"ZRANGEBYSCORE": Keys.zrangebyscore,
    b"ZRANGEBYLEX": Keys.zrangebylex,
    b"SADD": Keys.sadd,
    b"SREM": Keys.srem,
    b"SISMEMBER": Keys.sismember,
    b"INCR": Keys.incrby,
    b"INCRBY": Keys.incrby,
    b"EXISTS": Keys.exists,
    b"DEL": Keys.delete,
}

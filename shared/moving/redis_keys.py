"""Reads counters from Redis that applications keep there themselves: whole numbers in keys, and in fields of hashes."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.config.urls import shown
from shared.model.errors import TransientError
from shared.model.moving import Foreign

T = TypeVar("T")

PAGE: Final = 1_000
"""Keys, or fields, that Redis looks at for one answer. Others wait for it."""
TIMEOUT: Final = 10.0
_NUMBER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
"""What Redis itself can add to."""


class Origin(NamedTuple):
    """Where a counter is."""

    key: bytes
    field: bytes | None = None
    """The field, if the key is a hash."""


class RedisKeys:
    """A key `page:home` is the counter `page:home`, and so is the field `home` of the hash `page`."""

    def __init__(self, url: str, match: str) -> None:
        parts = urlsplit(url)
        number = parts.path.strip("/") or "0"
        self.name = f"redis {parts.hostname}:{parts.port or 6379}/{number}"
        self._redis: Any = Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, protocol=2)
        self._match = match
        self._shown = shown(url)
        self._origins: dict[str, Origin] = {}
        """The origins of all counters that were seen: a scan may show some twice."""

    async def close(self) -> None:
        await self._redis.aclose()

    async def counter(self, name: str) -> Foreign | None:
        key, field = self._origins[name]
        redis = self._redis
        value = await self._ask(redis.get(key) if field is None else redis.hget(key, field))
        return None if value is None else _foreign(name, value)

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        async for keys in self._pages("scan", match=self._match):
            values = await self._ask(self._redis.mget(keys)) if keys else []
            for key, value in zip(keys, values, strict=True):
                if value is not None:
                    if (one := self._seen(Origin(key), value, prefix)) is not None:
                        yield one
                    continue
                kind = (await self._ask(self._redis.type(key))).decode()
                if kind == "hash":
                    async for page in self._pages("hscan", key):
                        for field, count in page.items():
                            if (one := self._seen(Origin(key, field), count, prefix)) is not None:
                                yield one
                elif kind != "none":  # which has gone meanwhile
                    yield f"{_text(key)} is left out: it is a {kind}"

    async def _pages(self, scan: str, *of: bytes, **more: str) -> AsyncIterator[Any]:
        cursor = None
        while cursor != 0:
            cursor, page = await self._ask(getattr(self._redis, scan)(*of, cursor=cursor or 0, count=PAGE, **more))
            yield page

    def _seen(self, origin: Origin, value: bytes, prefix: str) -> Foreign | str | None:
        """The counter there; None if it is not asked for, or was seen."""
        try:
            name = ":".join([part.decode() for part in origin if part is not None])
        except UnicodeDecodeError:
            return f"{_text(origin.key)} is left out: its name is not UTF-8"
        if not name.startswith(prefix) or self._origins.get(name) == origin:
            return None
        if name in self._origins:
            return Foreign(name, flaw="its name appears twice: as a key and as a field of a hash, or in two hashes")
        self._origins[name] = origin
        return _foreign(name, value)

    async def _ask(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except (RedisError, OSError) as error:
            raise TransientError(f"{self._shown} does not answer as it should: {error}") from error


def _foreign(name: str, value: bytes) -> Foreign:
    if not _NUMBER.fullmatch(value):
        return Foreign(name, flaw="it is no whole number")
    return Foreign(name, int(value))


def _text(key: bytes) -> str:
    return key.decode(errors="backslashreplace")

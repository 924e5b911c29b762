"""The Python client: sends under an id until it is told that it counts."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp

from shared.errors import CountersinkError
from shared.ids import mint

AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504, 507})
"""Statuses after which the same request may succeed."""


class RequestError(CountersinkError):
    """The service refused a request, or could not be reached in time; the message says why."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter as the service reads it. `value` = `applied` + `pending`."""

    name: str
    value: int
    applied: int
    pending: int
    exact: bool
    as_of: str
    shards: int
    exists: bool


@dataclass(frozen=True, slots=True)
class Accepted:
    """A promise that so many increments count. `value` is the total after them, if it was waited for."""

    accepted: int
    receipt: str
    rejected: tuple[Mapping[str, Any], ...] = ()
    value: int | None = None


class Client:
    """Every increment travels under an id, its own or a new one, so that a retry never counts twice.

    `patience` is how many seconds a request may be tried again before `RequestError` is raised.
    """

    def __init__(self, url: str, *, patience: float = 30.0) -> None:
        self._url = url.rstrip("/")
        self._patience = patience
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=5))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None, "used within async with"  # noqa: S101
        await self._session.close()

    async def increment(
        self,
        name: str,
        delta: int = 1,
        *,
        id: str | None = None,  # noqa: A002 (what the service calls it)
        wait: float | None = None,
    ) -> Accepted:
        """Count; with `wait`, until it is in the store or so many seconds have passed."""
        query = {} if wait is None else {"wait": "applied", "timeout": f"{wait:g}"}
        body = {"delta": delta, "id": id or mint()}
        return _accepted(await self._send("POST", _path(name), query, json=body))

    async def increment_many(
        self, items: Iterable[Mapping[str, Any]] | Mapping[str, int], *, key: str | None = None
    ) -> Accepted:
        """Items with counter, delta and perhaps an id; or deltas by name. All under one key: the first body wins."""
        body: Any = {"counters": dict(items)} if isinstance(items, Mapping) else list(items)
        headers = {"Idempotency-Key": key or mint()}
        return _accepted(await self._send("POST", "/v1/increments", {}, json=body, headers=headers))

    async def get(self, name: str, *, max_age: float | None = None) -> Counter:
        query = {} if max_age is None else {"max_age": f"{max_age:g}"}
        return Counter(**await self._send("GET", _path(name), query))

    async def get_many(self, names: Sequence[str]) -> list[Counter]:
        """In that order."""
        answer = await self._send("GET", "/v1/counters", [("name", name) for name in names])
        return [Counter(**counter) for counter in answer["counters"]]

    async def list(self, prefix: str = "", *, page: int = 100) -> AsyncIterator[Counter]:
        """All counters that start with the prefix, in order."""
        token = ""
        while True:
            query = {"prefix": prefix, "limit": str(page), "page_token": token}
            answer = await self._send("GET", "/v1/counters", query)
            for counter in answer["counters"]:
                yield Counter(**counter)
            token = answer["next_page_token"]
            if not token:
                return

    async def receipt(self, receipt: str) -> str:
        """Its state: pending, applied, dead-lettered or unknown."""
        answer = await self._send("GET", f"/v1/receipts/{quote(receipt, safe='')}", {})
        return str(answer["state"])

    async def _send(self, method: str, path: str, query: Any, **options: Any) -> Any:
        assert self._session is not None, "used within async with"  # noqa: S101
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        pause = 0.05
        while True:
            retry_after = 0.0
            try:
                async with self._session.request(method, self._url + path, params=query, **options) as response:
                    answer = await response.json(content_type=None)
                    if response.status < 400:  # noqa: PLR2004 (errors begin here)
                        return answer
                    why = _why(answer, response.status)
                    if response.status not in AGAIN:
                        raise RequestError(why)
                    retry_after = _seconds(response.headers.get("Retry-After"))
            except (aiohttp.ClientError, ConnectionError, TimeoutError, ValueError) as error:
                why = f"no answer from {self._url}: {error}. Is it running, and is the URL right?"
            wait = max(retry_after, pause * random.uniform(0.5, 1.0))  # noqa: S311 (jitter)
            pause = min(pause * 2, 5.0)
            if loop.time() + wait > until:
                raise RequestError(why)
            await asyncio.sleep(wait)


def _path(name: str) -> str:
    return f"/v1/counters/{quote(name, safe='')}"


def _accepted(answer: Mapping[str, Any]) -> Accepted:
    return Accepted(answer["accepted"], answer["receipt"], tuple(answer.get("rejected", ())), answer.get("value"))


def _why(answer: Any, status: int) -> str:
    return str(answer["detail"]) if isinstance(answer, dict) and "detail" in answer else f"the answer was {status}"


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdigit() else 0.0

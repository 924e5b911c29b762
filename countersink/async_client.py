"""The client for asyncio: the same client, which waits in other threads."""

import _thread
import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Final, NoReturn, ParamSpec, Self, TypeVar, cast

from countersink import calls
from countersink.answers import Accepted, Changed, Counter, JobStatus, Page, Series
from countersink.client import CLOSING, INTERVAL, MOST, PATIENCE, Client
from countersink.tally import ONE

AT_ONCE: Final = 32
"""Requests at the same time; others wait for these. Streams, `flush` and `close` do not."""

P = ParamSpec("P")
T = TypeVar("T")


class _Done:
    """What `incr` returns, so that it may be awaited: nothing is waited for."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_DONE: Final = _Done()


class AsyncClient:
    """The methods of `Client`, for asyncio. `incr` never waits; all others are awaited."""

    def __init__(
        self,
        url: str,
        key: str | Callable[[], str] | None = None,
        *,
        patience: float = PATIENCE,
        interval: float = INTERVAL,
        most: int = MOST,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._client = Client(url, key, patience=patience, interval=interval, most=most, headers=headers, tls=tls)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places = asyncio.Semaphore(AT_ONCE)
        """For requests, in this loop."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client can't be copied or pickled: make another one")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def incr(self, name: str, by: int = ONE, id: str | None = None) -> _Done:  # noqa: A002 (as in Client)
        """Add to a counter, in the background. You need not await it."""
        self._client.incr(name, by, id)
        return _DONE

    @property
    def dropped(self) -> int:
        """How many increments were dropped since this process has the client: they do not count, or nobody knows."""
        return self._client.dropped

    async def flush(self, timeout: float = PATIENCE) -> bool:
        """Wait until everything counted before is accepted, or dropped. Returns False if that took too long."""
        return await _apart(partial(self._client.flush, timeout))

    async def close(self, timeout: float = CLOSING) -> bool:
        """Send the rest, for so long, and end. Returns False if something was left: it is dropped."""
        return await _apart(partial(self._client.close, timeout))

    async def increment(
        self,
        name: str,
        delta: int = 1,
        *,
        id: str | None = None,  # noqa: A002 (as in Client)
        wait: float | None = None,
        want_value: bool = False,
    ) -> Accepted:
        """Add to a counter, and wait until the service has accepted it; with `wait`, until it is applied, or for that
        many seconds. With `want_value`, the answer has the total, with this increment.
        """
        return await self._run(self._client.increment, name, delta, id=id, wait=wait, want_value=want_value)

    async def increment_many(
        self, items: Iterable[calls.Item] | Mapping[str, int], *, key: str | None = None, wait: float | None = None
    ) -> Accepted:
        """Increments, or deltas by name, under one key, see `Client.increment_many`."""
        return await self._run(self._client.increment_many, items, key=key, wait=wait)

    async def get(self, name: str, *, max_age: float | None = None) -> Counter:
        """Read the counter. A cached part of the answer is at most `max_age` seconds old."""
        return await self._run(self._client.get, name, max_age=max_age)

    async def get_many(self, names: Iterable[str], *, max_age: float | None = None) -> "list[Counter]":
        """Read several counters; the answers are in the same order."""
        return await self._run(self._client.get_many, names, max_age=max_age)

    async def top(self, prefix: str = "", n: int = 10) -> "list[Counter]":
        """The `n` largest counters whose names start with the prefix, see `Client.top`."""
        return await self._run(self._client.top, prefix, n)

    async def pages(
        self,
        prefix: str = "",
        *,
        page: int = 100,
        order: str = "name",
        unused_for: str | None = None,
        contains: str = "",
    ) -> AsyncIterator[Page]:
        """Like `list`, in pages as the service sends them, which say whether the list may lack counters. The others:
        see `Client.page`.
        """
        wanted = partial(self._client.page, prefix, size=page, order=order, unused_for=unused_for, contains=contains)
        token: str | None = ""
        while token is not None:
            found = await self._run(wanted, token=token)
            yield found
            token = found.token

    async def list(self, prefix: str = "", *, page: int = 100) -> AsyncIterator[Counter]:
        """All counters whose names start with the prefix, in the order of their names."""
        async for found in self.pages(prefix, page=page):
            for counter in found.counters:
                yield counter

    async def watch(self, *names: str, prefix: str | None = None) -> AsyncIterator[Counter]:
        """Some counters, or all under the prefix: their values now, and each change, see `Client.watch`."""
        signs = self._client.signs(*names, prefix=prefix)
        while True:
            if counter := await self._next(signs):
                yield counter

    async def series(
        self, name: str, by: str = "day", *, begin: datetime | None = None, end: datetime | None = None
    ) -> Series:
        """What was counted by `minute`, `hour` or `day`, see `Client.series`."""
        return await self._run(self._client.series, name, by, begin=begin, end=end)

    async def set(self, name: str, value: int, *, key: str | None = None) -> Changed:
        """Set the counter to `value`, see `Client.set`."""
        return await self._run(self._client.set, name, value, key=key)

    async def reset(self, name: str, *, key: str | None = None) -> Changed:
        """Set the counter to 0."""
        return await self._run(self._client.reset, name, key=key)

    async def delete(self, name: str, *, key: str | None = None) -> Changed:
        """Set the counter to 0 and remove it from lists until it is counted again."""
        return await self._run(self._client.delete, name, key=key)

    async def set_shards(self, name: str, shards: int, *, compact: bool = False) -> int:
        """Raise the number of shards to at least this; with `compact`, also lower it. Returns the number now."""
        return await self._run(self._client.set_shards, name, shards, compact=compact)

    async def start_job(
        self,
        kind: str,
        prefix: str,
        delta: int | None = None,
        *,
        shards: int | None = None,
        days: int | None = None,
        by: str | None = None,
        begin: datetime | None = None,
        end: datetime | None = None,
        id: str | None = None,  # noqa: A002 (as in Client)
    ) -> JobStatus:
        """Have it done to each counter under the prefix, see `Client.start_job`."""
        return await self._run(
            self._client.start_job, kind, prefix, delta, shards=shards, days=days, by=by, begin=begin, end=end, id=id
        )

    async def job(self, job: str) -> JobStatus:
        """The job and its progress."""
        return await self._run(self._client.job, job)

    async def stop_job(self, job: str) -> JobStatus:
        """Stop the job. Returns it: `failed`, unless it had ended before. What is done stays done."""
        return await self._run(self._client.stop_job, job)

    async def export(self, job: str) -> AsyncIterator[bytes]:
        """The result of a job, in chunks: see `Client.export`."""
        token: str | None = ""
        while token is not None:
            lines, token = await self._run(self._client.export_chunk, job, token)
            yield lines

    async def receipt(self, receipt: str) -> str:
        """The state of an increment: pending, applied, dead-lettered or unknown."""
        return await self._run(self._client.receipt, receipt)

    async def _next(self, signs: Iterator[Counter | None]) -> Counter | None:
        return await _apart(partial(next, signs))

    async def _run(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it in a thread when fewer than `AT_ONCE` run."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._places = loop, asyncio.Semaphore(AT_ONCE)
        places = self._places
        await places.acquire()
        return await _apart(partial(method, *args, **kwargs), places.release)


async def _apart(call: Callable[[], T], ended: Callable[[], object] = bool) -> T:
    """Call it in a thread of its own. Neither the end of the program nor a cancelled caller waits for that thread.
    `ended` is called in the loop afterwards.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        ended()
        if future.done():
            return
        if error is None:
            future.set_result(cast(T, result))
        else:
            future.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    try:
        _thread.start_new_thread(work, ())
    except BaseException:
        ended()
        raise
    return await future

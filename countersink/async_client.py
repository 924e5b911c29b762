"""The client for asyncio: the same client, which waits in other threads."""

import _thread
import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, NoReturn, ParamSpec, Self, TypeVar, cast

from countersink.answers import Counter, Page
from countersink.calls import PATIENCE
from countersink.client import CLOSING, INTERVAL, MOST, Client
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


def _awaited(
    method: Callable[Concatenate[Client, P], T],
) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]":
    """The same method, to be awaited."""

    @wraps(method)
    async def run(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(partial(method, self._client), *args, **kwargs)

    run.__qualname__ = f"Async{method.__qualname__}"
    return run


class AsyncClient:
    """The methods of `Client`, for asyncio. `incr` never waits; all others are awaited."""

    def __init__(
        self,
        url: str,
        key: str | Callable[[], str] | None = None,
        *,
        patience: float | None = None,
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

    increment = _awaited(Client.increment)
    increment_many = _awaited(Client.increment_many)
    get = _awaited(Client.get)
    get_many = _awaited(Client.get_many)
    top = _awaited(Client.top)
    series = _awaited(Client.series)
    set = _awaited(Client.set)
    reset = _awaited(Client.reset)
    delete = _awaited(Client.delete)
    set_shards = _awaited(Client.set_shards)
    start_job = _awaited(Client.start_job)
    job = _awaited(Client.job)
    stop_job = _awaited(Client.stop_job)
    receipt = _awaited(Client.receipt)

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

    async def list(self, prefix: str = "", *, page: int = 100, contains: str = "") -> AsyncIterator[Counter]:
        """All counters whose names start with the prefix, see `Client.list`."""
        async for found in self.pages(prefix, page=page, contains=contains):
            for counter in found.counters:
                yield counter

    async def watch(self, *names: str, prefix: str | None = None) -> AsyncIterator[Counter]:
        """Some counters, or all under the prefix: their values now, and each change, see `Client.watch`."""
        signs = self._client.signs(*names, prefix=prefix)
        while True:
            if counter := await self._next(signs):
                yield counter

    async def export(self, job: str) -> AsyncIterator[bytes]:
        """The result of a job, in chunks: see `Client.export`."""
        token: str | None = ""
        while token is not None:
            lines, token = await self._run(self._client.export_chunk, job, token)
            yield lines

    async def _next(self, signs: Iterator[Counter | None]) -> Counter | None:
        return await _apart(partial(next, signs))

    async def _run(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
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

"""Watching counters: the streams of server-sent events, and the one task that reads for all of them."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Final, NamedTuple

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from msgspec import Meta, Struct, field

from ingest.api.counters import check_asked_names, check_prefix
from ingest.api.fields import Header, Name, Prefix
from ingest.http.problems import Problem
from ingest.http.requests import Call
from shared.counters.reader import AllNames, Reader
from shared.http.answers import SECURE
from shared.http.front import told_when_it_leaves
from shared.http.shares import FairLock, Places
from shared.model.errors import TransientError
from shared.model.words import Reading, pages
from shared.runtime.clock import Clock
from shared.runtime.retry import ended, set_within

_log = logging.getLogger(__name__)

HEARTBEAT: Final = 10.0
"""Seconds after which a comment is written if nothing has changed: proxies see life, and we see who has gone."""
LEAVING: Final = 1.0
"""The same for a client that has closed its sending side: it reads no more, as a rule."""
_HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",  # nginx
    **SECURE,
}
MOST_IN_STREAM: Final = 1_000
"""Counters of one stream: names in the request, or names under its prefixes."""
LEAST: Final = 8
"""Places that a watch takes at least: one for each counter."""
MOST_PLACES: Final = 65_536
"""Places for all watches: 8,192 watches of a counter each, for example."""
INTERVAL: Final = 0.2
"""Seconds between two looks at the counters."""
LISTING: Final = 1.0
"""Seconds between two looks for new counters under a prefix."""
LEISURE: Final = 4
"""The pause after a look is at least this many times as long as the look: it takes at most 1/5 of the process."""
AT_ONCE: Final = 1_000
"""Counters that are read at once."""
WOKEN: Final = 50
"""Watches that are told before other tasks get a turn."""


class Shown(NamedTuple):
    value: int
    exact: bool
    exists: bool
    body: bytes
    """The JSON of the whole reading."""


class Watch:
    """One stream. It keeps what it has not written yet once for each counter: the newest."""

    def __init__(self, names: Sequence[str] = (), prefixes: Sequence[str] = ()) -> None:
        """It shows the counters with these names, or all that exist under the prefixes."""
        self.names = names
        self.prefixes = tuple(prefixes)
        self.problem: Problem | None = None
        """Why it has ended, unless the service stops."""
        self.ended = False
        self.leaves = False
        """Whether its client seems to hang up."""
        self._last: dict[str, Shown] = {}
        self._fresh: dict[str, Shown] = {}
        self._news = asyncio.Event()

    def list(self, names: Sequence[str]) -> None:
        """These counters are under the prefixes now. What it has shown is watched until it no longer exists."""
        self.names = [*dict.fromkeys([*names, *self._last])]

    def tell(self, name: str, shown: Shown) -> bool:
        last = self._last.get(name)
        if last is not None and (last is shown or last[:3] == shown[:3]):
            return False
        if self.prefixes and not shown.exists and self._last.pop(name, None) is None:
            return False
        if shown.exists or not self.prefixes:
            self._last[name] = shown
        self._fresh[name] = shown
        self._news.set()
        return True

    def end(self, problem: Problem | None = None) -> None:
        self.problem = problem
        self.ended = True
        self._news.set()

    def leave(self) -> None:
        """Have something written soon, which shows whether the client still reads."""
        self.leaves = True
        self._news.set()

    async def news(self, seconds: float) -> Sequence[Shown]:
        """What has changed since the last call. Empty if nothing did for so long, or if the watch has ended."""
        if not await set_within(self._news, seconds):
            return ()
        if not self.ended:
            self._news.clear()
        fresh, self._fresh = self._fresh, {}
        return [*fresh.values()]


class Watches:
    """All watches of this process. While there are none, it does nothing."""

    def __init__(
        self, reader: Reader, names: AllNames, render: Callable[[Reading], bytes], clock: Clock, most: int = MOST_PLACES
    ) -> None:
        self._reader = reader
        self._names = names
        self._render = render
        self._clock = clock
        self.places = Places(most, "counters are watched", "poll instead")
        self._watches: dict[Watch, None] = {}
        self._shown: dict[str, tuple[Reading, Shown]] = {}
        """The last reading of each watched counter: all watches of it share one."""
        self._listed_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    async def begin(self, watch: Watch) -> None:
        """Give the watch the current values. Raises what a read raises, and a 422 if there are too many counters."""
        if watch.prefixes:
            watch.list(await self._list(watch.prefixes))
        for reading in await self._reader.read(watch.names):
            watch.tell(reading.name, self._shown_of(reading))

    @contextmanager
    def open(self, watch: Watch) -> Iterator[None]:
        """Tell the watch of changes, in this context. It must have begun: so no later look shows an earlier value."""
        self._watches[watch] = None
        if self._stopped:
            watch.end()
        elif self._task is None:
            self._task = asyncio.create_task(self._run(), name="look at what is watched")
        try:
            yield
        finally:
            del self._watches[watch]
            if not self._watches:
                self._shown.clear()
                if self._task is not None:
                    self._task.cancel()
                    self._task = None

    def end_all(self) -> None:
        """End all watches. Their clients connect again, if they still may."""
        for watch in self._watches:
            watch.end()

    async def stop(self) -> None:
        self._stopped = True
        self.end_all()
        task, self._task = self._task, None
        await ended(task)

    async def _run(self) -> None:
        said = ""
        while True:
            begun = self._clock.monotonic()
            try:
                await self._look(begun)
                said = ""
            except TransientError as error:
                if not said:
                    _log.warning("the watched counters could not be read, and will be read again: %s", error)
                said = str(error)
            except Exception as error:
                _log.error("the watched counters could not be read, so all streams end", exc_info=error)
                self._task = None
                self.end_all()
                return
            await asyncio.sleep(max(INTERVAL, LEISURE * (self._clock.monotonic() - begun)))

    async def _look(self, now: float) -> None:
        if now - self._listed_at >= LISTING:
            self._listed_at = now
            await self._list_all()
        watching: dict[str, list[Watch]] = {}
        for watch in self._watches:
            for name in watch.names:
                watching.setdefault(name, []).append(watch)
        for name in self._shown.keys() - watching.keys():
            del self._shown[name]
        for some in pages(watching, AT_ONCE):
            await self._tell(some, watching)

    async def _tell(self, names: Sequence[str], watching: Mapping[str, Sequence[Watch]]) -> None:
        told = 0
        for reading in await self._reader.read(names):
            shown = self._shown_of(reading)
            self._shown[reading.name] = reading, shown
            for watch in watching[reading.name]:
                told += watch.tell(reading.name, shown)
                if told == WOKEN:
                    told = 0
                    await asyncio.sleep(0)

    def _shown_of(self, reading: Reading) -> Shown:
        last = self._shown.get(reading.name)
        if last is not None and last[0] is reading:
            return last[1]
        return Shown(reading.value, reading.exact, reading.exists, self._render(reading))

    async def _list_all(self) -> None:
        by_prefixes: dict[tuple[str, ...], list[Watch]] = {}
        for watch in self._watches:
            if watch.prefixes:
                by_prefixes.setdefault(watch.prefixes, []).append(watch)
        for prefixes, watches in by_prefixes.items():
            try:
                listed = await self._list(prefixes)
            except Problem as problem:
                for watch in watches:
                    watch.end(problem)
            else:
                for watch in watches:
                    watch.list(listed)

    async def _list(self, prefixes: Sequence[str]) -> Sequence[str]:
        found, _ = await self._names.under(prefixes, MOST_IN_STREAM + 1)
        if len(found) > MOST_IN_STREAM:
            said = f"there are more than {MOST_IN_STREAM:,} counters: watch a longer prefix, or names"
            raise Problem(422, said, field="prefix")
        return found


class LastEvent(Struct):
    last: Annotated[str, Header(lambda headers: headers.get("Last-Event-ID", ""))] = field(
        name="Last-Event-ID", default=""
    )
    """The id of the last event of an earlier stream. If nothing has changed since, the stream begins without an event.
    """


class WatchAsks(Struct):
    name: Annotated[list[Name], Meta(min_length=1, max_length=MOST_IN_STREAM, examples=[["page:/home"]])] = field(
        default_factory=list
    )
    """A counter. Not with `prefix`."""
    prefix: Prefix | None = None
    """Watch all counters whose names start with it, {MOST_IN_STREAM:,} at most."""


class WatchRoutes:
    """A stream begins with the current values. A slow reader gets the newest values, and never a queue."""

    def __init__(self, watches: Watches, clock: Clock, turns: FairLock) -> None:
        """Tenants take `turns` to read what a stream begins with."""
        self._watches = watches
        self._turns = turns
        self._clock = clock

    async def watch_counter(self, call: Call, name: str, asks: LastEvent) -> web.StreamResponse:
        """Watch one counter: its value now, and each change

        All streams together may watch {MOST_PLACES:,} counters. A stream takes at least {LEAST}, and a stream of a
        prefix {MOST_IN_STREAM:,}. One client may take half of the {MOST_PLACES:,}.
        """
        return await self._stream(call, Watch([name]), last=asks.last)

    async def watch_counters(self, call: Call, asks: WatchAsks) -> web.StreamResponse:
        """Watch several counters in one stream: by `name`, or all under a `prefix`

        All streams together may watch {MOST_PLACES:,} counters. A stream takes at least {LEAST}, and a stream of a
        prefix {MOST_IN_STREAM:,}. One client may take half of the {MOST_PLACES:,}. A new counter under the prefix is
        seen within a second or two.
        """
        caller, names, prefix = call.caller, [*dict.fromkeys(asks.name)], asks.prefix
        if prefix is None:
            if not names:
                raise Problem(422, "name what to watch: 'name', once for each counter, or 'prefix'", field="name")
            check_asked_names(names, MOST_IN_STREAM)
            caller.check_names(names)
            return await self._stream(call, Watch(names))
        if names:
            raise Problem(422, "send 'name' or 'prefix', not both", field="prefix")
        check_prefix(prefix)
        if not (prefixes := caller.prefixes_under(prefix)):
            caller.check_prefix(prefix)
        return await self._stream(call, Watch(prefixes=prefixes))

    async def _stream(self, call: Call, watch: Watch, last: str | None = None) -> web.StreamResponse:
        """`last`: the id of the last event that the client has seen, if its events have ids."""
        places = max(MOST_IN_STREAM if watch.prefixes else len(watch.names), LEAST)
        with self._watches.places.take(call.caller.tenant, places):
            async with call.caller.turn(self._turns):
                await self._watches.begin(watch)
            if call.only_head:
                return web.Response(headers=_HEADERS)
            response = web.StreamResponse(headers={**_HEADERS, **call.shows})
            with (
                self._watches.open(watch),
                told_when_it_leaves(call.request, watch.leave),
                suppress(ConnectionError),  # the client has gone
            ):
                await self._write(await response.prepare(call.request), watch, last, call.caller.ends)
            return response

    async def _write(self, writer: AbstractStreamWriter | None, watch: Watch, last: str | None, ends: float) -> None:
        """Write events until the watch has ended, or the key or token expires."""
        assert writer is not None  # noqa: S101 (a response is prepared once)
        begin = b"retry: 1000\n\n"  # milliseconds after which a browser connects again
        while not watch.ended and (left := ends - self._clock.now()) > 0:
            news = await watch.news(min(LEAVING if watch.leaves else HEARTBEAT, left))
            if ends <= self._clock.now():
                return
            events = b"".join([_event(shown, numbered=last is not None) for shown in news if _id(shown) != last])
            await writer.write(begin + events or b":\n\n")
            await writer.drain()  # until the client has read all of it
            begin, last = b"", None if last is None else ""
        if watch.problem is not None:
            await writer.write(b"event: problem\ndata: %b\n\n" % watch.problem.document())


def _event(shown: Shown, *, numbered: bool) -> bytes:
    id_ = b"id: %b\n" % _id(shown).encode() if numbered else b""
    return b"%bdata: %b\n\n" % (id_, shown.body)


def _id(shown: Shown) -> str:
    """The id of a counter's state: a client that has seen it need not get it again."""
    return f"{shown.value}.{shown.exact:d}{shown.exists:d}"

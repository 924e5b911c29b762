"""Reads what is our own: a store, and the files that `countersink copy` and `countersink map --export` wrote."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from shared.config.settings import MOST_SHARDS
from shared.model.buckets import Followed, Millis, TimeBucket, WallMillis, followed_of, text_of
from shared.model.errors import SettingsError
from shared.model.jobs import Job, JobState, Progress
from shared.model.moving import (
    Foreign,
    MovedCount,
    MovedJob,
    MovedReceipt,
    Origin,
    is_of_copy,
    moved_job,
    moved_receipt,
)
from shared.model.words import SHARD_FULL, Mark, Total, pages
from shared.ports.store import AuditData, Store
from shared.runtime.clock import Clock

# A store as a copy needs it: each page of totals, all counts by time and all receipts are of one instant.


PAGE: Final = 500
"""Counters whose totals are of one instant, and lines of a file that are told at once."""


class StoreOrigin:
    """Implements `Origin` with any store."""

    def __init__(
        self,
        store: Store,
        name: str,
        waiting: Callable[[], Awaitable[int | None]],
        went_on: Callable[[], bool] = lambda: False,
    ) -> None:
        """`name`: identifies the data for ever, wherever it is."""
        self.name = name
        self._store = store
        self._waiting = waiting
        self.went_on = went_on
        self._held: AuditData | None = None

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        async with self._store.audit_data() as data:
            self._held = data
            try:
                yield
            finally:
                self._held = None

    @asynccontextmanager
    async def _data(self) -> AsyncIterator[AuditData]:
        if self._held is not None:
            yield self._held
            return
        async with self._store.audit_data() as data:
            yield data

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        after = ""
        while names := await self._store.names(prefix, after, PAGE):
            for one in await self._read(names):
                yield one
            after = names[-1]
        after = ""
        while names := await self._store.dead_names(prefix, after, PAGE):
            there = await self._store.shards(names)
            for one in await self._read([name for name in names if name not in there]):
                yield one
            after = names[-1]

    async def counter(self, name: str) -> Foreign | None:
        return next(iter(await self._read([name])), None)

    async def _read(self, names: Sequence[str]) -> Sequence[Foreign]:
        """The totals of the counters that exist."""
        async with self._data() as data:
            totals, _ = await data.snapshot.read(names, ())
        return [foreign for name in names if (foreign := _foreign(name, totals[name])) is not None]

    async def counts(self, prefix: str) -> AsyncIterator[Sequence[MovedCount]]:
        now = await self._store.now()
        async with self._data() as data:
            found: dict[TimeBucket, MovedCount] = {}
            of: Sequence[str] = ()
            async for page in data.buckets():
                for one in page:
                    if not one.bucket.counter.startswith(prefix) or one.expires <= now:
                        continue
                    if of != one.bucket[:2]:
                        if found:
                            yield [*found.values()]
                        of, found = one.bucket[:2], {}
                    _, held, left, flaw = found.get(one.bucket, MovedCount(one.bucket))
                    left = max(left, Millis(one.expires - now))
                    found[one.bucket] = MovedCount(one.bucket, held + one.held, left, flaw or one.flaw)
            if found:
                yield [*found.values()]

    async def receipts(self) -> AsyncIterator[Sequence[MovedReceipt]]:
        now = await self._store.now()
        async with self._data() as data:
            async for page in data.receipts():
                if moved := [one for kept in page if (one := moved_receipt(kept.receipt, now)) is not None]:
                    yield moved

    async def marks(self, prefix: str) -> AsyncIterator[Sequence[Mark]]:
        async with self._data() as data:
            async for page in data.marks():
                if moved := [one for one in page if one.counter.startswith(prefix) and not is_of_copy(one)]:
                    yield moved

    async def jobs(self) -> AsyncIterator[Sequence[MovedJob]]:
        now = await self._store.now()
        async with self._data() as data:
            async for page in data.jobs():
                if moved := [one for state in page if (one := moved_job(state, now)) is not None]:
                    yield moved

    async def followed(self) -> Sequence[Followed]:
        async with self._data() as data:
            return await data.followed()

    async def waiting(self) -> int | None:
        return await self._waiting()


def _foreign(name: str, total: Total) -> Foreign | None:
    if not total.dead and (not total.shards or (total.guard.deleted and not total.value)):
        return None
    flaw = total.flaw or ("a dead letter of it is neither replayed nor dropped" if total.dead else "")
    return Foreign(name, total.value, flaw)


# A store in a file: what `countersink copy` writes as lines of JSON, and reads. Times are those of a wall clock.


ORIGIN: Final = "origin"
"""In the first line: the name of the store that was copied."""
LINES: Final = "lines"
"""In the last line: the number of lines before it. A file without it is cut off."""


class CopyFile:
    """Implements `Origin` with a file that `written` has made."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        first = next(_lines(file), {})
        if not first.keys() >= {ORIGIN, "followed", "waiting"}:
            raise SettingsError(f"{file} is no file of countersink copy: countersink import reads other exports")
        self.name = str(first[ORIGIN])
        self._followed = first["followed"]
        self._waiting: int | None = first["waiting"]

    def still(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        for line in _lines(self._file):
            if "value" in line and line["name"].startswith(prefix):
                yield Foreign(line["name"], line["value"])

    async def counter(self, name: str) -> Foreign | None:
        found = (line["value"] for line in _lines(self._file) if "value" in line and line["name"] == name)
        total = next(found, None)
        return None if total is None else Foreign(name, total)

    async def counts(self, prefix: str) -> AsyncIterator[Sequence[MovedCount]]:
        now = int(self._clock.now() * 1_000)
        for line in _lines(self._file):
            if "counts" in line and line["name"].startswith(prefix):
                some = [
                    MovedCount(TimeBucket(line["name"], line["by"], begin), held, Millis(until - now))
                    for begin, held, until in line["counts"]
                    if until > now
                ]
                if some:
                    yield some

    async def receipts(self) -> AsyncIterator[Sequence[MovedReceipt]]:
        now = int(self._clock.now() * 1_000)
        for lines in self._pages("receipt"):
            yield [
                MovedReceipt(line["receipt"], line["state"], line["note"].encode(), Millis(line["until"] - now))
                for line in lines
                if line["until"] > now
            ]

    async def marks(self, prefix: str) -> AsyncIterator[Sequence[Mark]]:
        for lines in self._pages("mark"):
            yield [
                Mark(line["mark"], line["counter"], 0, line["total"])
                for line in lines
                if line["counter"].startswith(prefix)
            ]

    async def jobs(self) -> AsyncIterator[Sequence[MovedJob]]:
        now = int(self._clock.now() * 1_000)
        for lines in self._pages("job"):
            yield [_job(line, Millis(line["until"] - now)) for line in lines if line["until"] > now]

    def _pages(self, kind: str) -> Iterator[Sequence[dict[str, Any]]]:
        """The lines with this field."""
        return pages((line for line in _lines(self._file) if kind in line), PAGE)

    async def followed(self) -> Sequence[Followed]:
        return followed_of(json.dumps(self._followed))

    async def waiting(self) -> int | None:
        return self._waiting

    def went_on(self) -> bool:
        return False


async def written(origin: Origin, prefix: str, now: WallMillis) -> AsyncGenerator[bytes, None]:
    """The lines of a file with everything that a copy takes along, of one instant: no id is there without its sum."""
    async with origin.still():
        number = 0
        for lines in (_counted(origin, prefix, now), _remembered(origin, prefix, now)):
            async for line in lines:
                yield json.dumps(line, ensure_ascii=False).encode() + b"\n"
                number += 1
        yield b'{"%b": %d}\n' % (LINES.encode(), number)


async def _counted(origin: Origin, prefix: str, now: WallMillis) -> AsyncIterator[dict[str, Any]]:
    followed = json.loads(text_of(await origin.followed()))
    yield {ORIGIN: origin.name, "followed": followed, "waiting": await origin.waiting()}
    async for one in origin.counters(prefix):
        if isinstance(one, str) or one.flaw:
            why = one if isinstance(one, str) else f"{one.name}: {one.flaw}"
            raise SettingsError(f"{why}, so nothing was written")
        yield {"name": one.name, "value": one.total}
    async for counts in origin.counts(prefix):
        name, by, _ = counts[0].bucket
        if flaw := next((one.flaw for one in counts if one.flaw), ""):
            raise SettingsError(f"{name}: {flaw}, so nothing was written")
        yield {"name": name, "by": by, "counts": [(one.bucket.begin, one.held, now + one.left) for one in counts]}


async def _remembered(origin: Origin, prefix: str, now: WallMillis) -> AsyncIterator[dict[str, Any]]:
    async for receipts in origin.receipts():
        for each in receipts:
            yield {"receipt": each.key, "state": each.state, "note": each.note.decode(), "until": now + each.left}
    async for marks in origin.marks(prefix):
        for mark in marks:
            yield {"mark": mark.source, "counter": mark.counter, "total": mark.total}
    async for jobs in origin.jobs():
        for state, left in jobs:
            id_, kind, prefix_, number, created, *_ = state.job
            job = {"job": id_, "kind": kind, "prefix": prefix_, "number": number, "created": created}
            done = {"progress": state.progress, "state": state.state, "finished": state.finished, "why": state.why}
            yield job | done | {"until": now + left}


def _job(line: dict[str, Any], left: Millis) -> MovedJob:
    job = Job(line["job"], line["kind"], line["prefix"], line["number"], line["created"])
    *numbers, examples = line["progress"]
    progress = Progress._make((*numbers, tuple(map(tuple, examples))))
    return MovedJob(JobState(job, 0, progress, line["state"], line["finished"], line["why"]), left)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """All lines but the last. `SettingsError` if one is no JSON object, or the file is cut off."""
    number, last = 0, None
    for number, said in _objects(file):
        if said is None or last is not None:
            raise SettingsError(f"{file}, line {number}: is no line of countersink copy")
        if LINES in said:
            last = said[LINES]
        else:
            yield said
    if last != number - 1:
        raise SettingsError(f"{file} is cut off after line {number}: copy into it again")


def _objects(file: Path, end: bytes = b"") -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The number of each line, and the JSON object in it; None if it is something else, or does not end with `end`."""
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    said = json.loads(line) if line.endswith(end) else None
                except (ValueError, RecursionError):
                    said = None
                yield number, said if type(said) is dict else None
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error


# The totals in a file that `countersink map --export` wrote.


EXAMPLE: Final = '{"name": "page:home", "value": 1234}'


class ExportSource:
    """The totals of an export. The whole file is read and checked before the first is told."""

    def __init__(self, file: Path) -> None:
        self.name = f"export {file.resolve()}"
        """A later export in the same place is the same data, some time later."""
        self._file = file

    @cached_property
    def _totals(self) -> Mapping[str, int]:
        return totals_in(self._file)

    async def counter(self, name: str) -> Foreign | None:
        total = self._totals.get(name)
        return None if total is None else Foreign(name, total)

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        for name, total in self._totals.items():
            if name.startswith(prefix):
                yield Foreign(name, total)


def totals_in(file: Path) -> dict[str, int]:
    """The total of each counter. `SettingsError` if a line has none, or a second one of a counter.

    An export of counts by time has the total, too. What a reset or delete has taken away is `before`.
    """
    totals: dict[str, int] = {}
    for number, said in _objects(file, b"\n"):  # the end of a file may be missing
        name, total = (said.get("name"), said.get("value", said.get("before"))) if said else (None, None)
        if type(name) is str and type(total) in {float, str}:
            raise SettingsError(
                f"{file}, line {number}: the value of {name!r} must be a whole number, is {total!r:.100}, so nothing"
                " was imported"
            )
        if type(name) is not str or type(total) is not int:
            raise SettingsError(
                f"{file}, line {number}: is no line of an export, so nothing was imported. A line is"
                f" {EXAMPLE}, and ends with a line break"
            )
        if abs(total) > MOST_SHARDS * SHARD_FULL:
            raise SettingsError(
                f"{file}, line {number}: the value of {name!r} is larger than a counter can be, so nothing was imported"
            )
        if name in totals:
            raise SettingsError(f"{file}, line {number}: {name!r} appears twice, so nothing was imported")
        totals[name] = total
    return totals

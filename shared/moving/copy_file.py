"""A store in a file: what `countersink copy` writes as lines of JSON, and reads. Times are those of a wall clock."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from shared.model.buckets import Followed, Millis, TimeBucket, WallMillis, followed_of, text_of
from shared.model.errors import SettingsError
from shared.model.imports import Foreign, Mark
from shared.model.jobs import Job, JobState, Progress
from shared.model.moving import MovedCount, MovedJob, MovedReceipt, Origin
from shared.model.words import pages
from shared.runtime.clock import Clock

PAGE: Final = 500
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
        if ORIGIN not in first:
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


async def written(origin: Origin, prefix: str, now: WallMillis) -> AsyncIterator[bytes]:
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
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    said = json.loads(line)
                except (ValueError, RecursionError):
                    said = None
                if type(said) is not dict or last is not None:
                    raise SettingsError(f"{file}, line {number}: is no line of countersink copy")
                if LINES in said:
                    last = said[LINES]
                else:
                    yield said
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
    if last != number - 1:
        raise SettingsError(f"{file} is cut off after line {number}: copy into it again")

"""A store in a file: what `countersink copy` writes as lines of JSON, and reads. Times are those of a wall clock."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, Final

from shared.model.buckets import Followed, Millis, TimeBucket, WallMillis, followed_of, text_of
from shared.model.errors import SettingsError
from shared.model.imports import Foreign
from shared.model.moving import MovedCount, MovedReceipt, Origin
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
        all_ = (
            MovedReceipt(line["receipt"], line["state"], line["note"].encode(), Millis(line["until"] - now))
            for line in _lines(self._file)
            if "receipt" in line and line["until"] > now
        )
        while some := list(islice(all_, PAGE)):
            yield some

    async def followed(self) -> Sequence[Followed]:
        return followed_of(json.dumps(self._followed))

    async def waiting(self) -> int | None:
        return self._waiting

    def went_on(self) -> bool:
        return False


async def written(origin: Origin, prefix: str, now: WallMillis) -> AsyncIterator[bytes]:
    """The lines of a file with everything that a copy takes along, of one instant: no id is there without its sum."""
    async with origin.still():
        async for line in _lines_of(origin, prefix, now):
            yield line


async def _lines_of(origin: Origin, prefix: str, now: WallMillis) -> AsyncIterator[bytes]:
    followed = json.loads(text_of(await origin.followed()))
    yield _line({ORIGIN: origin.name, "followed": followed, "waiting": await origin.waiting()})
    number = 1
    async for one in origin.counters(prefix):
        if isinstance(one, str) or one.flaw:
            why = one if isinstance(one, str) else f"{one.name}: {one.flaw}"
            raise SettingsError(f"{why}, so nothing was written")
        yield _line({"name": one.name, "value": one.total})
        number += 1
    async for counts in origin.counts(prefix):
        name, by, _ = counts[0].bucket
        if flaw := next((one.flaw for one in counts if one.flaw), ""):
            raise SettingsError(f"{name}: {flaw}, so nothing was written")
        yield _line(
            {"name": name, "by": by, "counts": [(one.bucket.begin, one.held, now + one.left) for one in counts]}
        )
        number += 1
    async for receipts in origin.receipts():
        for each in receipts:
            kept = {"receipt": each.key, "state": each.state, "note": each.note.decode(), "until": now + each.left}
            yield _line(kept)
            number += 1
    yield _line({LINES: number})


def _line(said: dict[str, Any]) -> bytes:
    return json.dumps(said, ensure_ascii=False).encode() + b"\n"


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

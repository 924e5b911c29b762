"""Reads the totals that answers to increments contain, together for the requests that ask at the same time."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

import orjson

from ingest.http.problems import problem_of, said_of
from shared.counters.reader import Reader
from shared.model.errors import CountersinkError
from shared.model.words import Reading

LONGEST_READ: Final = 5.0
"""Seconds that an answer waits for its totals."""
MOST_TOGETHER: Final = 1_000
"""Counters after which a read takes no further request."""


_Found = Mapping[str, Reading] | str
"""Readings by name; or why there are none."""


class Totals:
    """Reads of instants after the call. The increments are durable then, so no error is raised: it is told instead."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._next: tuple[dict[str, None], asyncio.Task[_Found]] | None = None

    async def of_one(self, name: str, *, with_exact: bool) -> bytes:
        """The fields `value` and `exact` of an answer, or why they are missing."""
        found = await self._read([name])
        if isinstance(found, str):
            return _why(found)
        reading = found[name]
        return _value(reading) + (_exact([reading]) if with_exact else b"")

    async def of_many(self, names: Collection[str]) -> bytes:
        """The fields `values` and `exact` of an answer, and `value` for one counter; or why they are missing."""
        found = await self._read(names)
        if isinstance(found, str):
            return _why(found)
        readings = [found[name] for name in names]
        values = b",".join([b"%b:%d" % (orjson.dumps(one.name), one.value) for one in readings])
        value = _value(readings[0]) if len(readings) == 1 else b""
        return b'%b,"values":{%b}%b' % (value, values, _exact(readings))

    async def _read(self, names: Collection[str]) -> _Found:
        """Of these counters, and perhaps of others."""
        try:
            async with asyncio.timeout(LONGEST_READ):
                return await asyncio.shield(self._join(names))
        except TimeoutError:
            return f"reading took longer than {LONGEST_READ:g} seconds"

    def _join(self, names: Collection[str]) -> asyncio.Task[_Found]:
        """The read that begins in the next turn of the event loop, with these counters."""
        if self._next is None or len(self._next[0]) + len(names) > MOST_TOGETHER:
            wanted: dict[str, None] = {}
            self._next = wanted, asyncio.create_task(self._run(wanted), name="read totals for answers")
        wanted, flight = self._next
        wanted.update(dict.fromkeys(names))
        return flight

    async def _run(self, wanted: dict[str, None]) -> _Found:
        if self._next is not None and self._next[0] is wanted:
            self._next = None
        try:
            return {reading.name: reading for reading in await self._reader.read([*wanted])}
        except Exception as error:
            return said_of(error) if isinstance(error, CountersinkError) else problem_of(error).detail


def _value(reading: Reading) -> bytes:
    return b',"value":%d' % reading.value


def _exact(readings: Collection[Reading]) -> bytes:
    return b',"exact":%b' % (b"true" if all(reading.exact for reading in readings) else b"false")


def _why(detail: str) -> bytes:
    return b',"value_error":%b' % orjson.dumps(f"it counts, but the total could not be read: {detail}")

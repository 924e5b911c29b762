"""Exports each counter of a page: a line of JSON with its name and its value, exact at one instant of the visit."""

from collections.abc import Sequence

import orjson

from flusher.jobs.visit import PageOutcome
from shared.counters.reader import Reader
from shared.model.errors import InexactError
from shared.model.jobs import Job


class Exporting:
    """Safe to repeat: of two results for a page the first is kept."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def __call__(self, job: Job, names: Sequence[str]) -> PageOutcome:  # noqa: ARG002 (other kinds need it)
        readings = await self._reader.read(names, 0)
        if not all(reading.exact for reading in readings):
            raise InexactError("these counters can't be read exactly now, so they are not exported yet")
        # By hand: a total may be larger than the integers that orjson writes.
        lines = [b'{"name":%b,"value":%d}\n' % (orjson.dumps(r.name), r.value) for r in readings if r.exists]
        return PageOutcome(len(lines), chunk=b"".join(lines))

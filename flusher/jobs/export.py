"""Exports each counter of a page: a line of JSON with its name and its value, exact at one instant of the visit; or its
counts by time, if the job asks for them.
"""

from collections.abc import Sequence

import orjson

from flusher.jobs.export_series import ExportingSeries
from flusher.jobs.visit import PageOutcome
from shared.counters.reader import Reader
from shared.model.errors import InexactError
from shared.model.jobs import Job


class Exporting:
    """Safe to repeat: of two results for a page the first is kept."""

    def __init__(self, reader: Reader, by_time: ExportingSeries) -> None:
        self._reader = reader
        self._by_time = by_time

    async def __call__(self, job: Job, names: Sequence[str]) -> PageOutcome:
        if job.span is not None:
            return await self._by_time(job, job.span, names)
        readings = await self._reader.read(names, 0)
        if not all(reading.exact for reading in readings):
            raise InexactError("these counters can't be read exactly now, so they are not exported yet")
        # By hand: a total may be larger than the integers that orjson writes.
        lines = [b'{"name":%b,"value":%d}\n' % (orjson.dumps(r.name), r.value) for r in readings if r.exists]
        return PageOutcome(len(lines), chunk=b"".join(lines))

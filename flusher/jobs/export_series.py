"""Exports counts by time of each counter of a page: a line of JSON as `GET /v1/counters/{name}/series` answers it, with
the counter's total of the same instant.
"""

from collections.abc import Sequence
from typing import Final

from flusher.jobs.visit import PageOutcome
from shared.counters.series import MOST_READ_AT_ONCE, SeriesReader
from shared.counters.series_text import written
from shared.model.errors import InexactError, RefusedError
from shared.model.jobs import Job
from shared.model.spans import Span
from shared.runtime.supervise import all_of

MOST_BYTES: Final = 900_000
"""Bytes of a chunk, which fits into an entity (1 MiB). One line with all the points that a reading may have is less."""


class ExportingSeries:
    """Safe to repeat, as `Exporting` is. It exports only what was kept since it began, and each line says since when: a
    rule that is new must not hold up the job.
    """

    def __init__(self, reader: SeriesReader) -> None:
        self._reader = reader

    async def __call__(self, job: Job, span: Span, names: Sequence[str]) -> PageOutcome:
        """Takes as many names from the beginning as fit into a chunk, and at least one."""
        if not self._reader.keeps_under(job.prefix, span.by):
            raise RefusedError(
                f"this flusher keeps no counts by {span.by} there: all processes need the same COUNTERSINK_WINDOWS"
            )
        lines: list[bytes] = []
        size = 0
        # A new end for each page would make a series longer than those before it.
        end = job.created + 1 if span.end is None else span.end
        for begin in range(0, len(names), MOST_READ_AT_ONCE):
            some = names[begin : begin + MOST_READ_AT_ONCE]
            for place, line in enumerate(await all_of([self._line(name, span, end) for name in some]), begin):
                if size and size + len(line) > MOST_BYTES:
                    return PageOutcome(len(lines), chunk=b"".join(lines), left=len(names) - place)
                if line:
                    lines.append(line)
                    size += len(line)
        return PageOutcome(len(lines), chunk=b"".join(lines))

    async def _line(self, name: str, span: Span, end: int) -> bytes:
        """Empty if the counter does not exist, or has no such counts."""
        if not self._reader.keeps(name, span.by):
            return b""
        asked = self._reader.range(name, span.by, span.begin, end)
        series = await self._reader.read(asked, only_whole=True)
        if not series.known:
            raise InexactError("these counts by time can't be read exactly now, so they are not exported yet")
        return written(series, total=True) + b"\n" if series.exists else b""

"""The progress line of a job on a terminal."""

import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from countersink.client.answers import JobStatus

WIDTH: Final = 24
FIRST: Final = 0.01
"""The remaining time is estimated once this share is done."""


class Bar:
    """A line on standard error that is rewritten in place. Nothing is shown if that is not a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = sys.stderr if stream is None else stream
        self._terminal = stream if stream is not None and stream.isatty() else None
        self._first: tuple[float, JobStatus] | None = None
        self._longest = 0

    def show(self, job: "JobStatus", now: float) -> None:
        """`now` in seconds."""
        if self._first is None:
            self._first = (now, job)
        begun, first = self._first
        self._write(line(job, now - begun, job.visited - first.visited, job.share - first.share))

    def end(self) -> None:
        if self._longest:
            self._write("", "\r")

    def _write(self, text: str, end: str = "") -> None:
        if self._terminal is not None:
            self._longest = max(self._longest, len(text))
            print(f"\r{text:{self._longest}}", end=end, file=self._terminal, flush=True)


def line(job: "JobStatus", seconds: float, counters: int, share: float) -> str:
    """The text of the line: counters visited, share done, seconds left."""
    done = round(WIDTH * job.share)
    text = f"[{'#' * done}{'.' * (WIDTH - done)}] {job.share:4.0%}  {job.visited:,} counters"
    if seconds > 0 and counters:
        text += f"  {counters / seconds:,.0f}/s"
    if seconds > 0 and share >= FIRST:
        text += f"  about {lasting((1 - job.share) / share * seconds)} left"
    return text


def lasting(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:  # noqa: PLR2004 (two minutes)
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"  # noqa: PLR2004 (two hours)

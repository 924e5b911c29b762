"""What commands write: standard output, whose reader may be gone, files, and the progress line of a job."""

import contextlib
import json
import math
import os
import stat
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from errno import EISDIR
from pathlib import Path
from tempfile import TemporaryFile, mkstemp
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO

from shared.model.errors import CountersinkError, amount, why_not_made

if TYPE_CHECKING:
    from countersink import JobStatus


def say(line: str) -> None:
    """Print a line of a long-running process. A closed standard output is no error: the process continues."""
    try:
        tell(line)
        flush()
    except (OSError, CountersinkError):
        give_up()


def tell(line: str) -> None:
    """Print a result. Raises `BrokenPipeError` if the reader has closed the pipe."""
    with _to_output():
        print(line)  # noqa: T201 (the result)


@contextlib.contextmanager
def _to_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CountersinkError(
            f"standard output can't be written: {error.strerror}. If the command changes something, that is done"
        ) from error


def note(line: str) -> None:
    """Print a note on standard error, besides the result."""
    if sys.stderr is not None:  # otherwise it would go to standard output
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr, flush=True)  # noqa: T201 (as above)


def json_of(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def plain(text: str) -> str:
    """The text on one line, without control characters that a terminal would obey."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def flush() -> None:
    """Flush now, while an error can still be reported; at the interpreter's exit it can't."""
    if sys.stdout is not None:  # None if the process was started with it closed
        with _to_output():
            sys.stdout.flush()


def give_up() -> None:
    with contextlib.suppress(OSError, ValueError):
        output = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output)
        os.close(nowhere)


def show_anything() -> None:
    """Show characters that the terminal can't print by their numbers: names may hold any character."""
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # a replaced stdout may lack it


# Writes files: an export, a copy, keys. A file appears when it is complete, not before.


STANDARD = "-"
"""The name that means standard output."""


def check(file: str) -> None:
    """Raise an error now if the file can't be written, before the work begins."""
    if file == STANDARD:
        return
    try:
        path = _target(file)
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        if not _is_special(path):
            TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise _unwritable(file, error) from error


async def written_to(file: str, chunks: AsyncIterator[bytes]) -> None:
    """Replace the file and keep its mode. A pipe or device is written to directly."""
    try:
        if file == STANDARD:
            await _copy(chunks, sys.stdout.buffer)
            return
        path = _target(file)
        if _is_special(path):
            with path.open("wb") as out:
                await _copy(chunks, out)
            return
        with replacing(path) as out:
            if path.exists():
                os.fchmod(out.fileno(), stat.S_IMODE(path.stat().st_mode))
            await _copy(chunks, out)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(file, error) from error


async def _copy(chunks: AsyncIterator[bytes], out: BinaryIO) -> None:
    async for chunk in chunks:
        out.write(chunk)
    out.flush()


def _target(file: str) -> Path:
    return Path(file).resolve()


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _unwritable(file: str, error: OSError) -> CountersinkError:
    name = "standard output" if file == STANDARD else file
    return CountersinkError(f"{name} can't be written: {why_not_made(error, Path(file).absolute().parent)}.")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file beside this one, which only its owner can read. It takes the place of the old one at the end; if
    something fails, that stays.
    """
    number, name = mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as out:
            os.fchmod(number, 0o600)
            yield out
            out.flush()
            os.fsync(number)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


# The progress line of a job on a terminal.


WIDTH: Final = 24
EVERY: Final = 1.0
RECENT: Final = 10.0
"""Seconds from whose progress the rate and the remaining time are estimated."""
BASIS: Final = 2.0
"""Seconds of progress that an estimate needs at least."""


class Bar:
    """A line on standard error that is rewritten in place. Nothing is shown if that is not a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = sys.stderr if stream is None else stream
        self._terminal = stream if stream is not None and stream.isatty() else None
        self._pace = JobPace()
        self._longest = 0
        self._shown = time.monotonic()

    def show(self, job: "JobStatus", now: float) -> None:
        """`now` in seconds."""
        self._pace.take(now, job.visited, job.share)
        self.write(line(job, self._pace))

    def show_at_times(self, text: str) -> None:
        """Show how far something is, once a second. What is printed next takes the place of the line."""
        if time.monotonic() - self._shown >= EVERY:
            self._shown = time.monotonic()
            self.write(text, "\r")

    def end(self) -> None:
        if self._longest:
            self.write("", "\r")

    def note(self, line: str) -> None:
        self.end()
        note(line)

    def write(self, text: str, end: str = "") -> None:
        if self._terminal is not None:
            self._longest = max(self._longest, len(text))
            print(f"\r{text:{self._longest}}", end=end, file=self._terminal, flush=True)


class JobPace:
    def __init__(self) -> None:
        self._looks: deque[tuple[float, int, float]] = deque()
        """When (s), how many counters were visited, and the share done."""

    def take(self, now: float, visited: int, share: float) -> None:
        self._looks.append((now, visited, share))
        while len(self._looks) > 1 and self._looks[1][0] <= now - RECENT:
            self._looks.popleft()

    def rate(self) -> float | None:
        """Counters per second. None while there is no basis for it."""
        seconds, counters, _ = self._progress()
        return counters / seconds if seconds >= BASIS and counters > 0 else None

    def left(self) -> float | None:
        """Seconds until the job is done, at this rate. None while the rate is unknown."""
        seconds, _, share = self._progress()
        return (1 - self._looks[-1][2]) / share * seconds if seconds >= BASIS and share > 0 else None

    def _progress(self) -> tuple[float, int, float]:
        if not self._looks:
            return 0.0, 0, 0.0
        (begun, visited, share), (now, visited_now, share_now) = self._looks[0], self._looks[-1]
        return now - begun, visited_now - visited, share_now - share


def line(job: "JobStatus", pace: JobPace) -> str:
    """The text of the line: counters visited, share done, seconds left."""
    share = min(math.floor(job.share * 100), 99) if job.state == "running" else 100  # "100%" is for the end
    done = WIDTH * share // 100
    text = f"[{'#' * done}{'.' * (WIDTH - done)}] {share:3}%  {amount(job.visited, 'counter')}"
    if (rate := pace.rate()) is not None:
        text += f"  {rate:,.0f}/s" if rate >= 1 else f"  {rate:.1g}/s"
    if (left := pace.left()) is not None:
        text += f"  about {lasting(max(left, 1))} left"
    return text


def lasting(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:  # noqa: PLR2004 (two minutes)
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"  # noqa: PLR2004 (two hours)

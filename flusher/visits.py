"""What a job does to a page of counters, and what comes of it. Each kind of job is one of these."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from shared.jobs import Job


class Outcome(NamedTuple):
    """Of a page."""

    visited: int
    """Counters that are there; what is left of deleted ones is passed over."""
    changed: int = 0
    """By this job, now or the first time that this page was visited."""
    failed: Sequence[tuple[str, str]] = ()
    """Counters that nothing was done to, and why; tried again they would fail again."""
    chunk: bytes = b""


Visit = Callable[[Job, Sequence[str]], Awaitable[Outcome]]
"""Does it to each of them once for each job, however often it is called. `TransientError`: it may have been done to
some; call it again.
"""

"""What a check of the set-up finds: a mark, the part, and a sentence. Pure."""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple, Protocol

from shared.model.buckets import DAY_SECONDS

OK: Final = "ok"
WARN: Final = "WARN"
"""It works, but somebody should know."""
FAIL: Final = "FAIL"
"""It does not work, or counts would be lost."""

SKEW_WARNS: Final = 5.0
SKEW_FAILS: Final = 120.0
"""Seconds that a clock may be off before that is a WARN, and before it is a FAIL."""


class Finding(NamedTuple):
    """One line of `countersink doctor`. Where something is wrong it says what to do."""

    mark: str
    part: str
    said: str


class Setup(Protocol):
    """A part of the set-up, which operators make and check before anything runs."""

    def provision(self) -> AsyncIterator[Finding]:
        """Make what is missing, and report it. What exists and is wrong is a FAIL. A second run changes nothing."""
        ...

    def findings(self) -> AsyncIterator[Finding]:
        """Look at everything, within a bounded time. What cannot be reached is a finding, too: nothing is raised."""
        ...


def of_clock(part: str, ahead: float) -> Finding:
    """`ahead`: how many seconds this machine's clock is ahead of the server's, at least."""
    if abs(ahead) <= SKEW_WARNS:
        return Finding(OK, part, f"this machine's clock is within {SKEW_WARNS:g} s of the server's")
    said = f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    return Finding(FAIL if abs(ahead) > SKEW_FAILS else WARN, part, f"{said}: set it with NTP")


def too_long(name: str, keeps: int, retention: int) -> str | None:
    """Why receipts would expire before the messages they stand for; None if they do not. Both are in seconds."""
    if keeps <= retention:
        return None
    kept, made = keeps / DAY_SECONDS, retention / DAY_SECONDS
    return (
        f"{name} keeps messages {kept:g} days, but receipts are made for {made:g}, so late messages would count twice:"
        f" set COUNTERSINK_RETENTION={keeps} for flushers, or let it keep messages for a shorter time"
    )

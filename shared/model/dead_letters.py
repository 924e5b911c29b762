"""The words of dead letters as administrators see them: what one holds, a page of them, and what was done. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

MOST_COUNTERS: Final = 10
"""Counters that a row names."""
MOST_START: Final = 200
"""Bytes of a message that a row shows."""
MOST_REASON: Final = 500
"""Characters of a reason or a flaw."""
_RECEIPT: Final = re.compile("r([a-z0-9]{0,100})")
_LETTER: Final = re.compile("m([0-9]{0,18})")


class Place(NamedTuple):
    """Where a page begins. The store's dead receipts come first, then the letters that only the broker has."""

    in_store: bool = True
    after: str = ""
    """The key of the last receipt, or the token of the last letter. Empty at the beginning."""

    def written(self) -> str:
        return f"{'r' if self.in_store else 'm'}{self.after}"


def place_of(text: str) -> Place | None:
    """The place that was written like this; None if there is no such place. An empty text is the beginning."""
    if not text:
        return Place()
    if found := _RECEIPT.fullmatch(text):
        return Place(in_store=True, after=found[1])
    found = _LETTER.fullmatch(text)
    return Place(in_store=False, after=found[1]) if found else None


@dataclass(frozen=True, slots=True)
class LetterRow:
    """One dead letter in a list. Its size is bounded, whatever the letter holds."""

    id: str
    published: str
    reason: str
    state: str
    """See `OpenedLetter.state`."""
    flaw: str | None
    """Why nothing in it can be counted; None if it can."""
    increments: int
    counters: Mapping[str, int]
    """The deltas that it would add to some of its counters."""
    more_counters: int
    size: int | None
    """Bytes of the message; None if only the store has the letter."""
    start: str | None
    """The first bytes of the message, as text."""


class LetterPage(NamedTuple):
    """Some dead letters."""

    rows: Sequence[LetterRow]
    next: Place | None
    """None if this is the last page."""
    complete: bool
    """Whether this page, and those before it, show all dead letters. Pub/Sub does not tell."""


class Left(NamedTuple):
    """A letter that stays a dead letter."""

    id: str
    why: str


@dataclass(slots=True)
class ReplayResult:
    """What a replay did, in numbers of increments."""

    counted: int = 0
    already: int = 0
    """Counted earlier."""
    dropped: int = 0
    """Dropped earlier."""
    left: int = 0
    letters: int = 0
    """Letters that were looked at."""
    letters_left: int = 0
    reasons: Sequence[Left] = ()
    """Some of the letters that are left."""
    not_found: Sequence[str] = ()
    more: bool = False
    """Whether the time was over before all letters were looked at."""


class Dropped(NamedTuple):
    """A letter that was dropped, and how many of its increments were not settled before."""

    id: str
    increments: int


@dataclass(slots=True)
class DropResult:
    """What a drop did."""

    dropped: Sequence[Dropped] = ()
    not_found: Sequence[str] = ()
    more: bool = False
    """As for a replay."""

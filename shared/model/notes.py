"""What receipts say besides being there, so that all can be added up again: JSON, as short as it can be. Pure.

The receipt of an id that a client chose says which use of the id it stands for. The first receipt of a commit says
which commit it was and what became of how many increments; that of a set, what the counter was before and after. The
sums of the commit stand in its first receipts, divided so that an entity takes them: one list of names for all its
envelopes, and all or nothing with the commit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import orjson

from shared.model.words import Tally

MOST_SUMS: Final = 1_000
"""In one note: at most 825 kB, where all names are 400 quotation marks. An envelope has no more than so many
counters, so there are receipts enough.
"""
SILENT: Final = b"{}"
"""Takes the place of a note that is there, and says nothing."""
_ATTEMPT: Final = "a"
_COMMIT: Final = "c"
_SUMS: Final = "s"
_TALLY: Final = ("n", "d", "x", "f")
_CHANGE: Final = "v"


@dataclass(frozen=True, slots=True)
class Note:
    """What a receipt says."""

    attempt: str = ""
    commit: str = ""
    tally: Tally = field(default_factory=Tally)
    sums: Mapping[str, int] = field(default_factory=dict)
    change: tuple[int, int] | None = None
    """What a set found, and what it made of it."""


_NOTHING: Final = Note()


def written(attempts: Iterable[str], commit: str, tally: Tally, sums: Mapping[str, int]) -> list[bytes]:
    """One for each receipt of a commit, in their order; `attempts`: of what each stands for, if that matters."""
    left = iter(sums.items())
    first = {_COMMIT: commit} | {name: count for name, count in zip(_TALLY, tally, strict=True) if count}
    notes: list[bytes] = []
    for attempt in attempts:
        note: dict[str, Any] = {_ATTEMPT: attempt} if attempt else {}
        if not notes:
            note |= first
        if some := dict(islice(left, MOST_SUMS)):
            note[_SUMS] = some
        notes.append(orjson.dumps(note) if note else b"")
    return notes


def of_change(commit: str, counter: str, deltas: Iterable[int], before: int, after: int) -> list[bytes]:
    """One for each delta, as each must fit into 64 bits, but one at least. Totals may be larger, so they are text."""
    first: dict[str, Any] = {_COMMIT: commit, _CHANGE: [str(before), str(after)]}
    rest = [{_SUMS: {counter: delta}} for delta in deltas]
    return [orjson.dumps(note) for note in ([first | rest[0], *rest[1:]] if rest else [first])]


def read(note: bytes) -> Note:
    if not note:
        return _NOTHING
    data: dict[str, Any] = orjson.loads(note)
    tally = Tally(*[data.get(name, 0) for name in _TALLY])
    change = (int(data[_CHANGE][0]), int(data[_CHANGE][1])) if _CHANGE in data else None
    return Note(data.get(_ATTEMPT, ""), data.get(_COMMIT, ""), tally, data.get(_SUMS, {}), change)

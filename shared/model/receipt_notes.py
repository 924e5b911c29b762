"""The notes in receipts, from which an audit adds everything up again: short JSON. Pure.

The receipt of a batch with an Idempotency-Key says which use of the key it stands for. The receipt of an envelope says
which of its increments with ids were not counted, because their ids had been used before. The first receipt of a commit
holds the commit's id and its tally of increments; the receipt of a set holds the value before and after. The sums of
the commit are in its first receipts, divided so that each fits into an entity: one list of names for all envelopes, all
or nothing with the commit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import orjson

from shared.model.words import Tally

MOST_SUMS: Final = 1_000
"""Sums in one note: at most 825 kB, with the longest names. An envelope has at most this many counters, so a commit has
enough receipts for its sums.
"""
SILENT: Final = b"{}"
"""Replaces an existing note and says nothing."""
_ATTEMPT: Final = "a"
_COMMIT: Final = "c"
_SUMS: Final = "s"
_TALLY: Final = ("n", "d", "x", "f")
_CHANGE: Final = "v"
_SECOND: Final = "u"


@dataclass(frozen=True, slots=True)
class Note:
    """What a receipt says."""

    attempt: str = ""
    commit: str = ""
    tally: Tally = field(default_factory=Tally)
    sums: Mapping[str, int] = field(default_factory=dict)
    change: tuple[int, int] | None = None
    """The value before and after a set."""
    second_uses: Sequence[int] = ()
    """Of an envelope: the places, in `keyed`, of the increments that were not counted because their ids had been used
    before.
    """


_NOTHING: Final = Note()


def written(
    attempts: Iterable[str],
    commit: str,
    tally: Tally,
    sums: Mapping[str, int],
    second_uses: Mapping[int, Sequence[int]] | None = None,
) -> list[bytes]:
    """A note for each receipt of a commit, in order. `attempts`: which use of its id each receipt stands for, or "".
    `second_uses`: see `Note`, by the place of the receipt.
    """
    left = iter(sums.items())
    first = {_COMMIT: commit} | {name: count for name, count in zip(_TALLY, tally, strict=True) if count}
    notes: list[bytes] = []
    second_uses = second_uses or {}
    for place, attempt in enumerate(attempts):
        note: dict[str, Any] = {_ATTEMPT: attempt} if attempt else {}
        if place in second_uses:
            note[_SECOND] = second_uses[place]
        if not notes:
            note |= first
        if some := dict(islice(left, MOST_SUMS)):
            note[_SUMS] = some
        notes.append(orjson.dumps(note) if note else b"")
    return notes


def of_change(commit: str, counter: str, deltas: Iterable[int], before: int, after: int) -> list[bytes]:
    """The notes of a set: one for each delta (64 bits each), at least one. Totals may be larger, so they are text."""
    first: dict[str, Any] = {_COMMIT: commit, _CHANGE: [str(before), str(after)]}
    rest = [{_SUMS: {counter: delta}} for delta in deltas]
    return [orjson.dumps(note) for note in ([first | rest[0], *rest[1:]] if rest else [first])]


def read(note: bytes) -> Note:
    if not note:
        return _NOTHING
    data: dict[str, Any] = orjson.loads(note)
    tally = Tally(*[data.get(name, 0) for name in _TALLY])
    change = (int(data[_CHANGE][0]), int(data[_CHANGE][1])) if _CHANGE in data else None
    return Note(
        data.get(_ATTEMPT, ""), data.get(_COMMIT, ""), tally, data.get(_SUMS, {}), change, data.get(_SECOND, ())
    )

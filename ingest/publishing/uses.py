"""Tells which uses of ids and keys a request made, and how many of them are known to be second ones. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from ingest.publishing.batch import Draft
from shared.model.receipt_notes import Note
from shared.model.receipts import key_of_envelope

_NO_NOTES: Final[Mapping[str, Note]] = {}


class Uses:
    """The uses that a request made. Make it right after its increments were added: others may be added behind them."""

    def __init__(self, drafts: Sequence[Draft], keyed: int) -> None:
        """`drafts`: those that hold the request. `keyed`: how many increments with ids it has."""
        self._whole = [draft for draft in drafts if draft.attempt]
        self._items: list[tuple[Draft, range]] = []
        # The ids of this request are the last ones in each draft, and its last ids are in the last draft.
        for draft in reversed(drafts):
            there = len(draft.keyed)
            first = max(there - keyed, 0)
            if first < there:
                self._items.append((draft, range(first, there)))
                keyed -= there - first

    def second(self, notes: Mapping[str, Note] | None = None) -> int:
        """How many increments are known to be second uses, once the drafts are durable: by this process, and by the
        notes of their receipts.
        """
        notes = _NO_NOTES if notes is None else notes
        return sum([draft.increments for draft in self._whole if _is_second(draft, notes)]) + sum(
            [_second_in(draft, places, notes) for draft, places in self._items]
        )


def _is_second(draft: Draft, notes: Mapping[str, Note]) -> bool:
    note = notes.get(key_of_envelope(draft.id)) if notes else None
    return draft.is_second or (note is not None and note.attempt not in {"", draft.attempt})


def _second_in(draft: Draft, places: range, notes: Mapping[str, Note]) -> int:
    note = notes.get(key_of_envelope(draft.id)) if notes else None
    known = draft.second_uses if note is None else draft.second_uses.union(note.second_uses)
    return sum([place in known for place in places]) if known else 0

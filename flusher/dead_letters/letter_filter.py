"""Chooses the dead letters that somebody names. Pure."""

from collections.abc import Sequence

from flusher.dead_letters.open_letter import OpenedLetter
from shared.model.receipts import key_of_envelope


class LetterFilter:
    """Selects the letters that a user asks for, by their ids or by receipts. The receipt of a batch names several
    envelopes, and only some of them may be dead letters. The receipt counts as found if at least one of them is.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self._parts = {one: {*one.split("."), *(key_of_envelope(id_) for id_ in one.split("."))} for one in ids}
        self._seen: set[str] = set()

    def of(self, batch: Sequence[OpenedLetter]) -> list[OpenedLetter]:
        """The letters of the batch that were asked for; they are marked as seen."""
        wanted = {*self._parts}.union(*self._parts.values())
        chosen = [one for one in batch if wanted & _names(one)]
        self._seen.update(*(_names(one) for one in chosen))
        return chosen

    def seen_all(self) -> bool:
        return all(
            one in self._seen or all({id_, key_of_envelope(id_)} & self._seen for id_ in one.split("."))
            for one in self._parts
        )

    def missed(self) -> list[str]:
        """The ids that were asked for and not found."""
        return [one for one, parts in self._parts.items() if not ({one} | parts) & self._seen]


def _names(opened: OpenedLetter) -> set[str]:
    return {opened.id, *(one.key for one in opened.envelopes), *([opened.envelope_id] if opened.envelope_id else [])}

"""Dead letters as they are opened: what they would count, and why they should be left. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from flusher.window import APPLIED, TOO_OLD
from shared.codec import decode
from shared.errors import UnreadableError
from shared.parts import Part, parts_of
from shared.words import Envelope, Letter, Receipt


@dataclass(frozen=True, slots=True)
class Opened:
    """A letter and what is in it."""

    letter: Letter
    envelope: Envelope | None
    parts: tuple[Part, ...]
    flaw: str | None
    """Why nothing can be."""

    @property
    def id(self) -> str:
        """The broker's own name of the message."""
        return self.letter.delivery.message_id

    def increments(self, part: Part) -> int:
        """How many a part carries."""
        counts = self.envelope.counts if self.envelope else {}
        return sum([counts.get(counter, 1) for counter in part.sums]) + len(part.keyed)

    def receipt_keys(self) -> Iterator[str]:
        """Of all its parts, and of the ids in them."""
        for part in self.parts:
            yield part.key
            for key, _ in part.keyed:
                yield key

    def unsure(self, found: Mapping[str, Receipt], *, late: bool) -> bool:
        """Whether some of it may have been applied, though no receipt says so: it was buried for its age, or it is
        `late`: so old that a receipt which is not there may have been there. A dead one, which lives as long as the
        letter, is proof that the envelope was not; it says nothing of the ids in it.
        """
        left = [part for part in self.parts if not _is(APPLIED, part.key, found)]
        if not left or self.envelope is None:
            return False
        if self.letter.reason.startswith(TOO_OLD):
            return True
        unknown = any(key not in found for part in left for key in (part.key, *(key for key, _ in part.keyed)))
        return unknown and late

    def state(self, found: Mapping[str, Receipt]) -> str:
        """What a replay would do with it, in a word: nothing, as it is unreadable or applied, or count it."""
        if self.flaw is not None:
            return "unreadable"
        return "applied" if all(_is(APPLIED, part.key, found) for part in self.parts) else "dead"


def open_letter(letter: Letter, topic: str) -> Opened:
    if letter.flaw is not None:
        return Opened(letter, None, (), letter.flaw)
    try:
        envelope = decode(letter.delivery, topic)
    except UnreadableError as error:
        return Opened(letter, None, (), str(error))
    return Opened(letter, envelope, tuple(parts_of(envelope)), None)


def _is(state: str, key: str, found: Mapping[str, Receipt]) -> bool:
    return key in found and found[key].state == state

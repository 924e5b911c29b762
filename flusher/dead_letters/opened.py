"""Dead letters as they are opened: what they would count, and why they should be left. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from flusher.flush.window import TOO_OLD
from shared.model import bodies
from shared.model.envelope import Part, parts_of
from shared.model.errors import NewerError, UnreadableError
from shared.model.words import APPLIED, DEAD, DROPPED, Letter, Receipt
from shared.wire.codec import decode


@dataclass(frozen=True, slots=True)
class OpenedLetter:
    """A letter, or what a dead receipt keeps of one, and what is in it."""

    letter: Letter
    parts: tuple[Part, ...]
    flaw: str | None = None
    """Why nothing can be counted."""
    envelope_id: str | None = None
    """None if nobody can say it."""
    created: int = 0
    sure_until: int | None = None
    """Of a dead receipt, see `Body`. A letter is judged by its age."""

    @property
    def id(self) -> str:
        """The broker's own name of the message; or the receipt, if the letter is not there."""
        return self.letter.delivery.message_id

    def receipt_keys(self) -> Iterator[str]:
        """Of all its parts, and of the ids in them."""
        for part in self.parts:
            yield part.key
            for key, _ in part.keyed:
                yield key

    def vanished(self, found: Mapping[str, Receipt]) -> bool:
        """Whether it is a dead receipt that is not there any more: it may have been applied long ago."""
        return not self.letter.delivery.token and any(part.key not in found for part in self.parts)

    def unsure(self, found: Mapping[str, Receipt], now: int, until: int) -> bool:
        """Whether some of it may have been applied, though no receipt says so: it was buried for its age, or is now so
        old (`until`) that a receipt which is not there may have been there. A dead one, which lives as long as the
        letter, is proof that the envelope was not; it says nothing of the ids in it.
        """
        left = [part for part in self.parts if not _over(part.key, found)]
        if not left or self.flaw is not None:
            return False
        if self.letter.reason.startswith(TOO_OLD):
            return True
        if not any(key not in found for part in left for key in (part.key, *(key for key, _ in part.keyed))):
            return False
        return 0 < (until if self.sure_until is None else self.sure_until) < now

    def state(self, found: Mapping[str, Receipt]) -> str:
        """What a replay would do with it, in a word: count it; or nothing, as it is unreadable, applied or dropped."""
        if self.flaw is not None:
            return "unreadable"
        states = {found[part.key].state if part.key in found else DEAD for part in self.parts}
        return next((state for state in (DEAD, DROPPED) if state in states), APPLIED)


def open_letter(letter: Letter, topic: str) -> OpenedLetter:
    if letter.flaw is not None:
        return OpenedLetter(letter, (), letter.flaw)
    try:
        envelope = decode(letter.delivery, topic)
    except (UnreadableError, NewerError) as error:
        return OpenedLetter(letter, (), str(error))
    return OpenedLetter(letter, tuple(parts_of(envelope)), None, envelope.id, envelope.created)


def open_receipt(receipt: Receipt) -> OpenedLetter:
    """A dead receipt with a body."""
    body = bodies.read(receipt)
    return OpenedLetter(body.letter, (body.part,), created=body.created, sure_until=body.sure_until)


def _over(key: str, found: Mapping[str, Receipt]) -> bool:
    return key in found and found[key].state in {APPLIED, DROPPED}

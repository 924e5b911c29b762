"""Chooses the dead letters that somebody names, and opens them: what they would count, and why some must be left.
Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.model.buckets import written_at
from shared.model.dead_letters import LetterState, read_body
from shared.model.errors import NewerError, UnreadableError
from shared.model.receipts import key_of_envelope
from shared.model.words import APPLIED, DEAD, DROPPED, Envelope, Letter, Receipt
from shared.wire.codec import decode


@dataclass(frozen=True, slots=True)
class OpenedLetter:
    """A dead letter, or the copy of one in a dead receipt, and its envelopes."""

    letter: Letter
    envelopes: tuple[Envelope, ...]
    flaw: str | None = None
    """Why nothing in it can be counted; None if it can."""

    @property
    def id(self) -> str:
        """The broker's name of the message, or the receipt key if there is no letter."""
        return self.letter.delivery.message_id

    @property
    def name(self) -> str:
        """What requests call it: the key of its first receipt, or the broker's name if it has none. It is the same
        whether the letter was found or only its dead receipt.
        """
        return self.envelopes[0].key if self.envelopes else self.id

    @property
    def envelope_id(self) -> str | None:
        return next((envelope.id for envelope in self.envelopes if envelope.id), None)

    @property
    def increments(self) -> int:
        return sum(envelope.increments for envelope in self.envelopes)

    @property
    def published(self) -> str:
        """When the message was published, for people."""
        try:
            return written_at(self.letter.delivery.published / 1_000)
        except (ValueError, OverflowError, OSError):  # a foreign publisher's time may be any number
            return str(self.letter.delivery.published)

    def receipt_keys(self) -> Iterator[str]:
        """The receipt keys of all its envelopes, and of the ids in them."""
        for envelope in self.envelopes:
            yield from envelope.receipt_keys()

    def second_uses(self) -> Iterator[str]:
        """The receipt keys that its envelopes have if other uses of their ids were first."""
        return (envelope.as_second_use().key for envelope in self.envelopes if envelope.attempt)

    def vanished(self, found: Mapping[str, Receipt]) -> bool:
        """Whether its dead receipt is gone: another replay may have applied it long ago."""
        return not self.letter.delivery.token and any(envelope.key not in found for envelope in self.envelopes)

    def is_in_store(self, found: Mapping[str, Receipt]) -> bool:
        """Whether the store has all of it that is not settled: in dead receipts with a body, which have all of them."""
        states = [found.get(one.key) for one in self.envelopes]
        return any(one is not None and one.body for one in states) and all(
            one is not None and one.settled for one in states
        )

    def left_to_drop(self, found: Mapping[str, Receipt]) -> tuple[list[Envelope], int]:
        """The envelopes that are not settled, and the number of their increments that were not counted."""
        left = [one for one in self.envelopes if not _over(one.key, found)]
        return left, sum(one.increments - sum(item.key in found for item in one.keyed) for one in left)

    def state(self, found: Mapping[str, Receipt]) -> LetterState:
        """Its state in a word: dead, or, if a replay would count nothing, unreadable, applied or dropped."""
        if self.flaw is not None:
            return "unreadable"
        states = {found[one.key].state if one.key in found else DEAD for one in self.envelopes}
        if DEAD in states:
            return DEAD
        return DROPPED if DROPPED in states else APPLIED


def open_letter(letter: Letter, topic: str) -> OpenedLetter:
    if letter.flaw is not None:
        return OpenedLetter(letter, (), letter.flaw)
    try:
        return OpenedLetter(letter, decode(letter.delivery, topic))
    except (UnreadableError, NewerError) as error:
        return OpenedLetter(letter, (), str(error))


def open_receipt(receipt: Receipt) -> OpenedLetter:
    """Open a dead receipt that has a body."""
    body = read_body(receipt)
    return OpenedLetter(body.letter, (body.envelope,))


def _over(key: str, found: Mapping[str, Receipt]) -> bool:
    return key in found and found[key].state in {APPLIED, DROPPED}


def sums_of(envelopes: Iterable[Envelope], counted: Collection[str] = ()) -> dict[str, int]:
    """What the envelopes add to each counter, without the ids that were `counted`."""
    sums: dict[str, int] = {}
    for envelope in envelopes:
        for counter, delta in envelope.sums.items():
            sums[counter] = sums.get(counter, 0) + delta
        for item in envelope.keyed:
            if item.key not in counted:
                sums[item.counter] = sums.get(item.counter, 0) + item.delta
    return sums


class LetterFilter:
    """Selects the letters that a user asks for, by their ids or by receipts. The receipt of a batch names several
    envelopes, and only some of them may be dead letters. The receipt counts as found if at least one of them is.
    """

    def __init__(self, ids: Sequence[str] | None) -> None:
        """None: all letters."""
        self._all = ids is None
        self._parts = {one: {*one.split("."), *(key_of_envelope(id_) for id_ in one.split("."))} for one in ids or ()}
        self._seen: set[str] = set()

    def of(self, batch: Sequence[OpenedLetter]) -> list[OpenedLetter]:
        """The letters of the batch that were asked for; they are marked as seen."""
        if self._all:
            return [*batch]
        wanted = {*self._parts}.union(*self._parts.values())
        chosen = [one for one in batch if wanted & _names(one)]
        self._seen.update(*(_names(one) for one in chosen))
        return chosen

    def seen_all(self) -> bool:
        return not self._all and all(
            one in self._seen or all({id_, key_of_envelope(id_)} & self._seen for id_ in one.split("."))
            for one in self._parts
        )

    def missed(self) -> list[str]:
        return [one for one, parts in self._parts.items() if not ({one} | parts) & self._seen]


def _names(opened: OpenedLetter) -> set[str]:
    return {opened.id, *(one.key for one in opened.envelopes), *([opened.envelope_id] if opened.envelope_id else [])}

"""Dead letters: what administrators see of them and did with them, as the API answers it, and the bodies that dead
receipts have. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

import orjson
from msgspec import Meta, Struct

from shared.model.buckets import NEVER, BrokerMillis, StoreMillis
from shared.model.receipts import read_note
from shared.model.words import Delivery, Entry, Envelope, Increment, Letter, Message, Receipt

MOST_SUMS_SHOWN: Final = 10
MOST_START: Final = 200
MOST_REASON: Final = 500
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


Count = Annotated[int, Meta(ge=0)]
LetterState = Literal["dead", "unreadable", "applied", "dropped"]


class DeadLetter(Struct, forbid_unknown_fields=True):
    id: str
    published: str
    """When the message was published: RFC 3339, if it is a date at all."""
    reason: str
    """Why it was not counted."""
    state: LetterState
    """`dead`: not counted. `unreadable`: nothing in it can be counted. `applied`, `dropped`: that was done with it
    before, and a replay or a drop only removes it.
    """
    flaw: str | None
    """Why nothing in it can be counted; null if it can."""
    increments: Count
    """How many increments it holds."""
    counters: dict[str, int]
    """What it would add to its first 10 counters."""
    more_counters: Count
    """How many counters more it has."""
    size: int | None
    """Bytes of the message; null if only the store has what it counts."""
    start: str | None
    """The first 200 bytes of the message, as text."""


class LetterPage(NamedTuple):
    """Some dead letters."""

    rows: Sequence[DeadLetter]
    next: Place | None
    """None if this is the last page."""
    complete: bool
    """Whether this page, and those before it, show all dead letters. Pub/Sub does not say."""


class Why(Struct, forbid_unknown_fields=True):
    id: str
    why: str


class LettersReplayed(Struct, forbid_unknown_fields=True):
    """What was counted, and which letters are left."""

    counted: Count
    """Increments that were counted by this request."""
    already: Count
    """Increments that were counted before."""
    dropped: Count
    """Increments that were dropped before."""
    left: Count
    """Increments that were not counted. Their letters stay."""
    letters: Count
    """Letters that were looked at."""
    letters_left: Count
    """Letters that stay dead letters."""
    reasons: list[Why]
    """Why letters stay, for the first 100 of them."""
    not_found: list[str]
    """Ids of no dead letter: they were replayed or dropped before, or somebody else holds them on Pub/Sub."""
    more: bool
    """Whether there is more to do. Then send the same request again."""


class DroppedLetter(Struct, forbid_unknown_fields=True):
    id: str
    increments: Count
    """Increments that were given up."""


class LettersDropped(Struct, forbid_unknown_fields=True):
    """The letters that were dropped."""

    dropped: list[DroppedLetter]
    not_found: list[str]
    """Ids of no dead letter: they were replayed or dropped before, or somebody else holds them on Pub/Sub."""
    more: bool
    """Whether there is more to do. Then send the same request again."""


# What a dead receipt keeps of an envelope, to read it as pending and to replay it.
#
# The names of the counters are stored beside the body, since stores find the receipt by them. The body is JSON: the sum
# of each counter, in the order of the names; for each increment with an id, its counter's place, delta and receipt key;
# and what operators want to know. An envelope has at most 1,000 counters and ids, so names and body stay below 1 MiB,
# the limit of an entity.


_SUMS: Final = "s"
_KEYED: Final = "k"
_UNTIL: Final = "u"
_RETRIED: Final = "r"
_REASON: Final = "w"
_PUBLISHED: Final = "p"
_CREATED: Final = "c"


class Body(NamedTuple):
    """The content of a dead receipt."""

    envelope: Envelope
    sure_until: StoreMillis
    """If not `NEVER`: after this time its ids may have been counted elsewhere, under expired receipts."""
    letter: Letter
    """The same as a dead letter. It has no data and no token, since no broker holds it; its id is the receipt key."""


def with_body(
    dead: Receipt, envelope: Envelope, reason: str, published: BrokerMillis, sure_until: StoreMillis = NEVER
) -> Receipt:
    """The dead receipt with this envelope as its body. It never expires. `sure_until`: see `Body`."""
    counters = tuple(sorted(envelope.counters()))
    place = {counter: number for number, counter in enumerate(counters)}
    body: dict[str, Any] = {
        _SUMS: [envelope.sums.get(counter) for counter in counters],
        _PUBLISHED: published,
        _CREATED: envelope.created,
        _REASON: reason[:MOST_REASON],
    }
    if envelope.keyed:
        body[_KEYED] = [[place[item.counter], item.delta, item.key] for item in envelope.keyed]
        body[_UNTIL] = sure_until
    if envelope.retried:
        body[_RETRIED] = True
    return dead._replace(expires=NEVER, counters=counters, body=orjson.dumps(body))


def read_body(receipt: Receipt) -> Body:
    body: dict[str, Any] = orjson.loads(receipt.body)
    note = read_note(receipt.note)
    envelope = Envelope(
        id="",
        sums={name: delta for name, delta in zip(receipt.counters, body[_SUMS], strict=True) if delta is not None},
        keyed=tuple(Increment(receipt.counters[at], delta, receipt=key) for at, delta, key in body.get(_KEYED, ())),
        created=body[_CREATED],
        retried=body.get(_RETRIED, False),
        attempt=note.attempt,
        receipt=receipt.key,
        increments=note.tally.dead or len(body[_SUMS]),  # very old notes say nothing
    )
    delivery = Delivery("", Message(b""), receipt.key, body[_PUBLISHED])
    return Body(envelope, body.get(_UNTIL, NEVER), Letter(delivery, body[_REASON]))


def entries_of_dead(receipts: Iterable[Receipt], counter: str) -> tuple[tuple[Entry, ...], StoreMillis]:
    """The entries of one counter in these dead receipts, and until when they are certain (`NEVER`: always)."""
    found = []
    until = NEVER
    for body in map(read_body, receipts):
        keyed = tuple([(item.key, item.delta) for item in body.envelope.keyed if item.counter == counter])
        envelope = body.envelope
        found.append(Entry(envelope.key, envelope.sums.get(counter, 0), keyed, created=envelope.created))
        if keyed and body.sure_until:
            until = min(until or body.sure_until, body.sure_until)
    return tuple(found), until

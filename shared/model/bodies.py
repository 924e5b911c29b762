"""Owns what a dead receipt keeps of a part of an envelope: enough to read it as pending, and to replay it. Pure.

The names of the counters stand beside the body, because stores find the receipt by them. The body is JSON: the sum of
each counter, in the order of the names; the increments with an id, each by its counter's place, its delta and its
receipt key; and what people want to know of it. A part has at most 1,000 counters and ids, so names and body stay below
the 1 MiB that an entity can have.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import orjson

from shared.model import notes
from shared.model.envelope import Part
from shared.model.words import Delivery, Entry, Increment, Letter, Message, Receipt

MOST_REASON: Final = 500
"""Characters that are kept of the reason."""
_SUMS: Final = "s"
_KEYED: Final = "k"
_UNTIL: Final = "u"
_RETRIED: Final = "r"
_REASON: Final = "w"
_PUBLISHED: Final = "p"
_CREATED: Final = "c"


class Body(NamedTuple):
    """A dead receipt, read."""

    part: Part
    sure_until: int
    """Milliseconds since 1970, if not 0: later than that, nobody can say whether its ids were counted elsewhere."""
    created: int
    """Milliseconds since 1970, by the clock of whoever made the envelope."""
    letter: Letter
    """As a dead letter: without data, called after the receipt, and without a token, since no broker holds it."""


class Origin(NamedTuple):
    """Where a part comes from."""

    published: int
    created: int
    sure_until: int


def with_body(dead: Receipt, part: Part, reason: str, origin: Origin) -> Receipt:
    """The dead receipt of this part, which keeps it and never expires."""
    counters = tuple(sorted(part.counters()))
    place = {counter: number for number, counter in enumerate(counters)}
    body: dict[str, Any] = {
        _SUMS: [part.sums.get(counter) for counter in counters],
        _PUBLISHED: origin.published,
        _CREATED: origin.created,
        _REASON: reason[:MOST_REASON],
    }
    if part.keyed:
        body[_KEYED] = [[place[item.counter], item.delta, key] for key, item in part.keyed]
        body[_UNTIL] = origin.sure_until
    if part.retried:
        body[_RETRIED] = True
    return dead._replace(expires=0, counters=counters, body=orjson.dumps(body))


def read(receipt: Receipt) -> Body:
    body: dict[str, Any] = orjson.loads(receipt.body)
    note = notes.read(receipt.note)
    part = Part(
        key=receipt.key,
        sums={name: delta for name, delta in zip(receipt.counters, body[_SUMS], strict=True) if delta is not None},
        keyed=tuple((key, Increment(receipt.counters[place], delta)) for place, delta, key in body.get(_KEYED, ())),
        retried=body.get(_RETRIED, False),
        increments=note.tally.dead or len(body[_SUMS]),  # very old notes say nothing
        attempt=note.attempt,
    )
    delivery = Delivery("", Message(b""), receipt.key, body[_PUBLISHED])
    return Body(part, body.get(_UNTIL, 0), body[_CREATED], Letter(delivery, body[_REASON]))


def entries(receipts: Iterable[Receipt], counter: str) -> tuple[tuple[Entry, ...], int]:
    """What these dead receipts say of one counter; and until when that is sure (0: always)."""
    found = []
    until = 0
    for body in map(read, receipts):
        keyed = tuple([(key, item.delta) for key, item in body.part.keyed if item.counter == counter])
        found.append(Entry(body.part.key, body.part.sums.get(counter, 0), keyed))
        if keyed and body.sure_until:
            until = min(until or body.sure_until, body.sure_until)
    return tuple(found), until

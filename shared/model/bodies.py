"""Owns what a dead receipt keeps of an envelope: enough to read it as pending, and to replay it. Pure.

The names of the counters stand beside the body, because stores find the receipt by them. The body is JSON: the sum of
each counter, in the order of the names; the increments with an id, each by its counter's place, its delta and its
receipt key; and what people want to know of it. An envelope has at most 1,000 counters and ids, so names and body stay
below the 1 MiB that an entity can have.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import orjson

from shared.model import notes
from shared.model.envelope import Envelope
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

    envelope: Envelope
    sure_until: int
    """Milliseconds since 1970, if not 0: later than that, nobody can say whether its ids were counted elsewhere."""
    letter: Letter
    """As a dead letter: without data, called after the receipt, and without a token, since no broker holds it."""


def with_body(dead: Receipt, envelope: Envelope, reason: str, published: int, sure_until: int = 0) -> Receipt:
    """The dead receipt of this envelope, which keeps it and never expires. `sure_until`: see `Body`."""
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
    return dead._replace(expires=0, counters=counters, body=orjson.dumps(body))


def read(receipt: Receipt) -> Body:
    body: dict[str, Any] = orjson.loads(receipt.body)
    note = notes.read(receipt.note)
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
    return Body(envelope, body.get(_UNTIL, 0), Letter(delivery, body[_REASON]))


def entries(receipts: Iterable[Receipt], counter: str) -> tuple[tuple[Entry, ...], int]:
    """What these dead receipts say of one counter; and until when that is sure (0: always)."""
    found = []
    until = 0
    for body in map(read, receipts):
        keyed = tuple([(item.key, item.delta) for item in body.envelope.keyed if item.counter == counter])
        found.append(Entry(body.envelope.key, body.envelope.sums.get(counter, 0), keyed))
        if keyed and body.sure_until:
            until = min(until or body.sure_until, body.sure_until)
    return tuple(found), until

"""Writes an envelope into the body of a dead receipt, to read it as pending and to replay it. Pure.

The names of the counters are stored beside the body, since stores find the receipt by them. The body is JSON: the sum
of each counter, in the order of the names; for each increment with an id, its counter's place, delta and receipt key;
and what operators want to know. An envelope has at most 1,000 counters and ids, so names and body stay below 1 MiB, the
limit of an entity.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import orjson

from shared.model import receipt_notes
from shared.model.buckets import NEVER, BrokerMillis, StoreMillis
from shared.model.envelope import Envelope
from shared.model.words import Delivery, Entry, Increment, Letter, Message, Receipt

MOST_REASON: Final = 500
"""Characters of the reason that are kept."""
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


def read(receipt: Receipt) -> Body:
    body: dict[str, Any] = orjson.loads(receipt.body)
    note = receipt_notes.read(receipt.note)
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


def entries(receipts: Iterable[Receipt], counter: str) -> tuple[tuple[Entry, ...], StoreMillis]:
    """The entries of one counter in these dead receipts, and until when they are certain (`NEVER`: always)."""
    found = []
    until = NEVER
    for body in map(read, receipts):
        keyed = tuple([(item.key, item.delta) for item in body.envelope.keyed if item.counter == counter])
        envelope = body.envelope
        found.append(Entry(envelope.key, envelope.sums.get(counter, 0), keyed, created=envelope.created))
        if keyed and body.sure_until:
            until = min(until or body.sure_until, body.sure_until)
    return tuple(found), until

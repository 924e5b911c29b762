"""Owns what was accepted under the ids of clients, as far as this process remembers: an id that comes again with other
content is most probably a mistake, and would not count. Pure.
"""

from collections import OrderedDict
from hashlib import blake2b
from typing import Final

import orjson

from ingest.parsing.json_object import BodyError
from ingest.publishing.batch import Batch
from shared.model.receipts import CLIENT_IDS_REMEMBERED
from shared.model.times import Monotonic
from shared.model.words import Increment

MOST: Final = 20_000
"""Ids that are remembered: the last ones, and none longer than a client's id counts once."""


class KnownIds:
    """What each id stands for. Nothing depends on it but the answer to a client that is wrong."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: OrderedDict[bytes, tuple[bytes | int, Monotonic]] = OrderedDict()

    def check(self, item: Increment, now: Monotonic) -> None:
        """Raise a 422 if another delta was accepted under this id."""
        self._check(_of_item(item), item.delta, "id", now)

    def check_whole(self, envelope_id: str, batch: Batch, now: Monotonic) -> None:
        """Raise a 422 if another batch was accepted under this Idempotency-Key."""
        self._check(envelope_id.encode(), _content(batch), "Idempotency-Key", now)

    def accepted(self, draft: Batch, now: Monotonic) -> None:
        """Remember what is durable now. What was first stays."""
        for item in draft.keyed:
            self._remember(_of_item(item), item.delta, now)
        if draft.attempt:
            self._remember(draft.id.encode(), _content(draft), now)

    def _check(self, id_: bytes, content: bytes | int, field: str, now: Monotonic) -> None:
        known = self._known.get(id_)
        if known is not None and known[0] != content and now - known[1] < CLIENT_IDS_REMEMBERED / 1_000:
            raise BodyError(
                422,
                "something else was accepted under this id, so this would not count: send it under a new one",
                field,
            )

    def _remember(self, id_: bytes, content: bytes | int, now: Monotonic) -> None:
        if id_ not in self._known:
            self._known[id_] = content, now
            if len(self._known) > self._most:
                self._known.popitem(last=False)


def _of_item(item: Increment) -> bytes:
    return blake2b(f"{len(item.counter)}:{item.counter}{item.id}".encode(), digest_size=16).digest()


def _content(batch: Batch) -> bytes:
    return blake2b(orjson.dumps(batch.sums, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()

"""Remembers what this process accepted under the ids of clients. An id that comes again with other content is most
probably a mistake, and would not count. With the same content, it is a second use. Pure.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from ingest.parsing.json_object import BodyError
from ingest.publishing.batch import Batch, Draft
from shared.model.receipts import CLIENT_IDS_REMEMBERED
from shared.model.times import Monotonic
from shared.model.words import Increment

_INSTEAD: Final = (
    "only one of the two counts, and that may be this one, if you sent it before. The request added nothing now. If it"
    " is no retry, send it under a new one"
)
MOST: Final = 20_000
"""Ids that are remembered: the last ones, and none longer than a client's id counts once."""


class KnownIds:
    """What each id stands for. Nothing depends on it but what clients are told."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: OrderedDict[int, tuple[bytes | int, Monotonic]] = OrderedDict()

    def check(self, items: Sequence[Increment], now: Monotonic) -> None:
        """Raise a 422 if another delta was accepted under one of these ids. If ids are equal, only the first counts."""
        first = {_of_item(item): item for item in reversed(items)} if self._known else {}
        for id_, item in first.items():
            if self._is_other(id_, item.delta, now):
                name = item.counter[:100]
                raise BodyError(422, f"another delta for {name!r} was accepted under this id or key: {_INSTEAD}", "id")

    def check_whole(self, envelope_id: str, batch: Batch, now: Monotonic) -> None:
        """Raise a 422 if another batch was accepted under this Idempotency-Key."""
        if self.is_other(envelope_id, batch, now):
            why = f"another body was accepted under this Idempotency-Key: {_INSTEAD}"
            raise BodyError(422, why, "Idempotency-Key")

    def is_other(self, envelope_id: str, batch: Batch, now: Monotonic) -> bool:
        """Whether another batch was accepted under the id of this envelope."""
        return self._is_other(hash(envelope_id), batch.content(), now)

    def accepted(self, draft: Draft, now: Monotonic) -> None:
        """Remember what is durable now, and mark the second uses in the draft. The first use of an id stays."""
        for place, item in enumerate(draft.keyed):
            if not self._is_new(_of_item(item), item.delta, now):
                draft.second_uses.add(place)
        if draft.attempt:
            draft.is_second = not self._is_new(hash(draft.id), draft.content(), now)

    def _is_other(self, id_: int, content: bytes | int, now: Monotonic) -> bool:
        known = self._find(id_, now)
        return known is not None and known != content

    def _find(self, id_: int, now: Monotonic) -> bytes | int | None:
        """What was accepted under the id, if it is not so long ago that the id may count again."""
        content, then = self._known.get(id_, (None, now))
        return content if now - then < CLIENT_IDS_REMEMBERED / 1_000 else None

    def _is_new(self, id_: int, content: bytes | int, now: Monotonic) -> bool:
        """Remember the id. Returns whether this is the first use of it."""
        if self._find(id_, now) is not None:
            return False
        self._known.pop(id_, None)
        self._known[id_] = content, now
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return True


def _of_item(item: Increment) -> int:
    """Python's own hash: 64 bits with a secret of this process, so that nobody can choose ids with the same one."""
    return hash((item.counter, item.id))

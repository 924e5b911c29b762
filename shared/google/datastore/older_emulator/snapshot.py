"""A snapshot of a server that cannot read at an instant."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.keys import DatastorePlace, name_of, receipt_of
from shared.google.datastore.snapshot import Numbers, SnapshotQuestion, ask_for_dead
from shared.model.errors import TransientError
from shared.model.words import Total

_LONGEST_SEARCH: Final = 20.0
"""Seconds in which two looks have to agree."""


class AgreeingSnapshot:
    """For a server without read times: what two Lookups agree on, the second begun after the first ended.

    It held at an instant between them, which is later than `time`: it may hold what has been applied since then. So a
    reading made of it is exact only when nothing is pending.
    """

    exact = False

    def __init__(
        self, client: DatastoreClient, place: DatastorePlace, numbers: Numbers, time: int, as_of: float
    ) -> None:
        self.time = time
        self.as_of = as_of
        self.now = int(as_of * 1_000)
        self._client = client
        self._place = place
        self._numbers = numbers

    async def read(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        clock = asyncio.get_running_loop()
        until = clock.time() + _LONGEST_SEARCH
        before: Mapping[tuple[str, str], int] | None = None
        asked = {*receipts}
        while clock.time() < until:  # without a pause: the sooner the second look, the likelier do they agree
            question = SnapshotQuestion(self._place, counters, asked, self._numbers)
            found = await self._client.look_up(question.keys)
            question.learn(found.entities)
            dead = await ask_for_dead(self._client, self._place, question, None)
            if more := question.more():  # asks for them along with the rest the next time
                asked |= {name for kind, name in map(name_of, more) if kind == self._place.kinds.receipt}
                before = None
                continue
            if self._lacks(found.entities, dead, counters):
                before = None
                continue
            versions = {name_of(one.entity.key): one.version for one in (*found.entities, *dead)}
            if before == versions:
                return question.answer()
            before = versions
        raise TransientError("Datastore: these entities change faster than they can be read twice")

    def _lacks(self, found: Sequence[Any], dead: Sequence[Any], counters: Sequence[str]) -> bool:
        """Whether the query has not found yet what the Lookup has: queries of the older emulator come a little late."""
        queried = {name_of(one.entity.key) for one in dead}
        receipts = [one.entity for one in found if name_of(one.entity.key)[0] == self._place.kinds.receipt]
        late = [receipt_of(one) for one in receipts if name_of(one.key) not in queried]
        return any(one.body and not {*one.counters}.isdisjoint(counters) for one in late)

"""Goes through the dead letters on Pub/Sub: the messages of a subscription, which are held meanwhile."""

import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from shared.model.buckets import BEGINNING, Instant
from shared.model.errors import TransientError
from shared.model.words import Delivery, Letter
from shared.pubsub.client import RETRY_FOR, PubsubClient, PubsubPlace, patiently
from shared.pubsub.publisher import PubsubPublisher, dead_letter, letter_of, published
from shared.pubsub.subscription import Leases
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

WAIT: Final = 2.0
"""Seconds. If a pull brings nothing for so long, there is probably nothing more."""
MOST_PULLED: Final = 100
MOST_ROUNDS: Final = 20
"""How many pulls may bring only letters that are held already."""
MOST_LATE: Final = 5
"""How many pulls in a row may bring only letters buried after this began: they may never end."""


class PubsubDeadLetters:
    """Implements `DeadLetters`. It may miss some: Pub/Sub tells no number of them, and others may hold some."""

    complete = False

    def __init__(
        self,
        client: PubsubClient,
        place: PubsubPlace,
        *,
        lease: float,
        clock: Clock,
        wait: float = WAIT,
        patience: float = RETRY_FOR,
    ) -> None:
        """`lease`: seconds for which others do not see the letters that are held, even if this process is killed. If a
        pass takes longer, nothing is lost or counted twice: receipts tell.
        """
        self._client = client
        self._place = place
        self._lease = lease
        self._wait = wait
        self._patience = patience
        self._leases = Leases(client, place.dead_subscription, patience)
        self._publisher = PubsubPublisher(client, place.dead_topic, patience=patience)
        self._pulled: deque[Letter] = deque()
        self._held: dict[str, str] = {}
        """Tokens by the broker's ids of the letters."""
        self._began = clock.now() * 1_000
        self._late = 0
        """How many pulls in a row, up to now, brought only letters that were buried since this began."""
        self._reburied: set[str] = set()
        """Ids of messages that were buried again, as new letters."""

    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        for _ in range(MOST_ROUNDS):
            if self._pulled or self._late == MOST_LATE or not await self._fetch():
                break
        letters: list[Letter] = []
        while self._pulled and len(letters) < limit:
            max_bytes -= len(self._pulled[0].delivery.message.data)
            if max_bytes < 0 and letters:
                break
            letters.append(self._pulled.popleft())
        return letters

    def continue_after(self, token: str) -> None:
        """Do nothing: Pub/Sub has no order of letters."""

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:  # noqa: ARG002 (no overlay lives here)
        await self._leases.ack(tokens)
        gone = {*tokens}
        self._held = {letter: token for letter, token in self._held.items() if token not in gone}

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Publish it as a new letter, which is kept for the whole retention, and acknowledge the old one. If this is
        interrupted in between, both letters remain.
        """
        self._reburied.add(delivery.message_id)
        await self._publisher.publish([dead_letter(delivery, reason, self._place.topic)])
        await self.ack([delivery.token], BEGINNING)

    async def close(self) -> None:
        tokens, self._held = [*self._held.values()], {}
        self._pulled.clear()
        try:
            await self._leases.give_back(tokens)
        except TransientError as error:
            _log.warning("%d dead letters stay hidden for up to %g seconds: %s", len(tokens), self._lease, error)

    async def _fetch(self) -> bool:
        """Pull once, and return whether anything came, new or not."""
        subscription = self._place.dead_subscription
        received = await patiently(lambda _: self._client.pull(subscription, MOST_PULLED, self._wait), self._patience)
        await self._leases.extend([one.ack_id for one in received], self._lease)
        late = all(published(one.message) > self._began for one in received)
        self._late = self._late + 1 if late else 0
        for one in received:
            new = one.message.message_id not in self._held
            self._held[one.message.message_id] = one.ack_id
            letter = letter_of(one.ack_id, one.message, self._place.topic)
            if new and letter.delivery.message_id not in self._reburied:
                self._pulled.append(letter)
        return bool(received)

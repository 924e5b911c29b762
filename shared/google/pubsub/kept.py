"""A publisher that sends only where a subscription keeps what it sends: Pub/Sub itself drops it without a word."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from shared.google.pubsub.client import PATIENCE, DeniedError, NotFoundError, PubsubClient
from shared.google.pubsub.provision import strays
from shared.google.pubsub.publisher import PubsubPublisher
from shared.model.errors import TransientError, UnkeptError
from shared.model.words import Message
from shared.runtime import metrics

_log = logging.getLogger(__name__)

EVERY: Final = 10.0
"""Seconds for which a look at the subscription is believed. Pub/Sub allows some 6,000 looks a minute in a project."""
AGAIN: Final = 2.0
"""Seconds until the next look while the subscription is missing, or Pub/Sub is away."""
REACH: Final = 2.0
"""Seconds that a look may take."""
ADVICE: Final = (
    "run: countersink provision, then see 'A subscription that was deleted' in the README for what was published last"
)


class KeptPublisher:
    """A `PubsubPublisher` that looks at the subscription before it publishes, unless it has just done so.

    `UnkeptError`: the subscription is known to be missing, detached, or one of another topic; nothing was sent. It
    works again as soon as a look finds it. If nobody can tell, because Pub/Sub is away or because our account may not
    look, what was seen last holds; at first that is taken to be well.
    """

    def __init__(
        self,
        client: PubsubClient,
        topic: str,
        subscription: str,
        *,
        patience: float = PATIENCE,
        every: float = EVERY,
        again: float = AGAIN,
        of: str = "counts",
    ) -> None:
        """`of`: what it publishes, for the metric."""
        self._client = client
        self._topic = topic
        self._subscription = subscription
        self._publisher = PubsubPublisher(client, topic, patience=patience)
        self._every = every
        self._again = again
        self._missing = metrics.UNKEPT.labels(of)
        self._flaw: str | None = None
        self._next = float("-inf")
        """When the next look is due, by the loop's clock."""
        self._warned = False
        self._looking = asyncio.Lock()

    async def publish(self, messages: Sequence[Message]) -> None:
        await self._look()
        try:
            await self._publisher.publish(messages)
        except TransientError:
            self._next = float("-inf")  # it may have been deleted while we could not see it
            raise

    async def check(self) -> None:
        await self._publisher.check()
        await self._look()

    async def _look(self) -> None:
        """`UnkeptError`. One look is in flight, and all who came meanwhile go by it."""
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if now >= self._next:
                self._next = now + (self._every if await self._sees() and self._flaw is None else self._again)
        if self._flaw is not None:
            raise UnkeptError(self._flaw)

    async def _sees(self) -> bool:
        """Whether the look told anything."""
        try:
            found = await self._client.get_subscription(self._subscription, REACH)
            flaws = strays(found, self._topic)
        except NotFoundError:
            flaws = ["it is not there"]
        except DeniedError as error:
            flaws = []
            if not self._warned:
                _log.warning(
                    "whether %s is there can't be seen, so that increments would be lost without a word if it is"
                    " deleted; give this account Pub/Sub Viewer on it: %s",
                    self._subscription,
                    error,
                )
            self._warned = True
        except TransientError:
            return False
        self._flaw = f"{self._subscription} keeps nothing of what is published: {flaws[0]}; {ADVICE}" if flaws else None
        self._missing.set(bool(flaws))
        return True

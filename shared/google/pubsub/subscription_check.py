"""Publishes only while a subscription keeps the messages: without one, Pub/Sub drops them silently."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from shared.google.pubsub.client import PATIENCE, DeniedError, NotFoundError, PubsubClient
from shared.google.pubsub.provision import strays
from shared.google.pubsub.publisher import PubsubPublisher
from shared.model.errors import TransientError, UnkeptError
from shared.model.words import Message
from shared.ports.broker import Check, at_any_time
from shared.runtime import metrics

_log = logging.getLogger(__name__)

EVERY: Final = 10.0
"""Seconds between two looks at the subscription. Pub/Sub allows about 6,000 looks a minute in a project."""
AGAIN: Final = 2.0
"""Seconds between two looks while the subscription is missing, or Pub/Sub is unavailable."""
REACH: Final = 2.0
"""Seconds that a look may take."""
ADVICE: Final = "run: countersink provision, then see 'When a subscription is deleted' in docs/google-cloud-outages.md"


class KeptPublisher:
    """A `PubsubPublisher` that looks at the subscription before it publishes, unless it has just done so.

    It raises `UnkeptError` if the subscription is missing, detached, or belongs to another topic; nothing was sent
    then. It publishes again as soon as a look finds the subscription. If a look tells nothing, because Pub/Sub is
    unavailable or this account may not look, the result before it holds; the first one is assumed to be good.
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

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        await self._look()
        try:
            await self._publisher.publish(messages, check)
        except TransientError:
            self._next = float("-inf")  # it may have been deleted while we could not see it
            raise

    async def check(self) -> None:
        await self._publisher.check()
        await self._look()

    async def _look(self) -> None:
        """Look at the subscription if that is due; raise `UnkeptError` if it is unfit. Callers share one look."""
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if now >= self._next:
                self._next = now + (self._every if await self._sees() and self._flaw is None else self._again)
        if self._flaw is not None:
            raise UnkeptError(self._flaw)

    async def _sees(self) -> bool:
        """Look at the subscription, and return whether the look told anything."""
        try:
            found = await self._client.get_subscription(self._subscription, REACH)
            flaws = strays(found, self._topic)
        except NotFoundError:
            flaws = ["it does not exist"]
        except DeniedError as error:
            flaws = []
            if not self._warned:
                _log.warning(
                    "this account may not look at %s: if it is deleted, increments will be lost silently; give the"
                    " account the role Pub/Sub Viewer on it: %s",
                    self._subscription,
                    error,
                )
            self._warned = True
        except TransientError:
            return False
        self._flaw = f"{self._subscription} keeps nothing of what is published: {flaws[0]}; {ADVICE}" if flaws else None
        self._missing.set(bool(flaws))
        return True

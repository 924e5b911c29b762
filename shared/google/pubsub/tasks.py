"""Keeps the tasks of jobs on a topic of their own on Pub/Sub, so that publishers of increments cannot add tasks."""

import logging
from collections.abc import Sequence

from shared.google.pubsub.client import PubsubClient, PubsubPlace
from shared.google.pubsub.publisher import PubsubPublisher
from shared.google.pubsub.subscription import PubsubSubscription
from shared.model import jobs
from shared.model.errors import NewerError, UnreadableError
from shared.model.jobs import Task
from shared.model.times import BEGINNING
from shared.model.words import Message
from shared.ports.jobs import Lease
from shared.runtime import metrics

_log = logging.getLogger(__name__)

MOST_BYTES = 2**20
"""Bytes in one pull. A task has a few hundred."""


class PubsubTasks:
    """Implements `Tasks`. They are published and leased like the broker's messages."""

    def __init__(self, client: PubsubClient, place: PubsubPlace, *, lease: float) -> None:
        """`place`: that of the broker."""
        self._publisher = PubsubPublisher(client, place.tasks.topic)
        self._subscription = PubsubSubscription(client, place.tasks, lease=lease, outstanding=1)
        self._lease = lease

    async def publish(self, tasks: Sequence[Task]) -> None:
        if tasks:
            await self._publisher.publish([Message(jobs.written(task)) for task in tasks])

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        leases = []
        for delivery in await self._subscription.pull(limit, MOST_BYTES, wait):
            try:
                leases.append(Lease(delivery.token, jobs.read(delivery.message.data)))
            except NewerError as error:  # when the lease ends, it is handed out again
                metrics.NEWER.inc()
                _log.warning("message %s is left to newer flushers: %s", delivery.message_id, error)
            except UnreadableError as error:
                _log.error("message %s is dropped: %s", delivery.message_id, error)
                await self.ack([delivery.token])
        return leases

    async def extend(self, tokens: Sequence[str]) -> None:
        await self._subscription.extend(tokens, self._lease)

    async def ack(self, tokens: Sequence[str]) -> None:
        await self._subscription.ack(tokens, BEGINNING)

    async def give_back(self, tokens: Sequence[str]) -> None:
        await self._subscription.give_back(tokens)

    async def close(self) -> None:
        await self._subscription.close()

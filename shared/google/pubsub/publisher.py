"""The publisher on Pub/Sub: requests within its limits, several of them in flight, tried again for a while."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from shared.google.pubsub.client import PATIENCE, NotFoundError, PubsubClient, SetupError, patiently
from shared.google.pubsub.wire import requests, to_wire
from shared.model.errors import OverloadedError
from shared.model.words import Message
from shared.runtime.drain_rate import Drain

SIDE_BY_SIDE: Final = 8
"""Requests in flight."""
FRESH: Final = 1.0
"""Seconds for which a success says that the next publish will succeed, too."""


class PubsubPublisher:
    """Nothing is told of unapplied messages here, so it refuses only what would be too much in flight."""

    def __init__(
        self, client: PubsubClient, topic: str, max_in_flight_bytes: int = 2**26, patience: float = PATIENCE
    ) -> None:
        self._client = client
        self._topic = topic
        self._max_in_flight_bytes = max_in_flight_bytes
        self._patience = patience
        self._in_flight_bytes = 0
        self._drain = Drain(max_in_flight_bytes / 4)
        self._slots = asyncio.Semaphore(SIDE_BY_SIDE)
        self._good = float("-inf")

    async def publish(self, messages: Sequence[Message]) -> None:
        """Tries for `patience` seconds, so an error does mean that something is wrong. It says "not taken" only of
        what it never sent: an answer, whatever it is, may follow a try that was taken and not answered.
        """
        batches = requests([to_wire(message) for message in messages])
        size = sum(size for _, size in batches)
        self._admit(size)
        if self._in_flight_bytes <= self._max_in_flight_bytes // 2:
            self._drain.begins(asyncio.get_running_loop().time())
        self._in_flight_bytes += size
        try:
            # All are awaited, also after the first failed: what goes on behind the caller's back is not bounded.
            ends = await asyncio.gather(*(self._send(batch) for batch, _ in batches), return_exceptions=True)
        finally:
            self._in_flight_bytes -= size
            self._drain.went(size, asyncio.get_running_loop().time())
        for end in ends:
            if end is not None:
                raise end
        self._good = asyncio.get_running_loop().time()

    async def _send(self, batch: Sequence[Any]) -> None:
        async with self._slots:
            await patiently(lambda timeout: self._client.publish(self._topic, batch, timeout), self._patience)

    async def check(self) -> None:
        """Asks for the topic, unless a publish has just succeeded. Whether we may publish is asked only of an account
        that may not look, since the emulator can't say.
        """
        self._admit(1)
        if asyncio.get_running_loop().time() - self._good < FRESH:
            return
        try:
            await self._client.get_topic(self._topic)
        except NotFoundError:
            raise
        except SetupError:
            if not await self._client.may(self._topic, "pubsub.topics.publish"):
                raise
        self._good = asyncio.get_running_loop().time()

    def _admit(self, size: int) -> None:
        if self._in_flight_bytes and self._in_flight_bytes + size > self._max_in_flight_bytes:
            raise OverloadedError(
                f"{self._in_flight_bytes} bytes are on their way to Pub/Sub,"
                f" {self._max_in_flight_bytes} may be: is it slow, or away?",
                self._drain.seconds(size, asyncio.get_running_loop().time()),
            )

"""Publishes on Pub/Sub: in requests within its limits, several at once, each retried for a while."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from shared.google.pubsub.client import PATIENCE, NotFoundError, PubsubClient, SetupError, patiently
from shared.google.pubsub.requests import requests, to_wire
from shared.model.errors import OverloadedError, StoodStillError, TransientError
from shared.model.words import Message
from shared.ports.broker import Check, at_any_time
from shared.runtime.drain_rate import Drain
from shared.runtime.supervise import all_of

SIDE_BY_SIDE: Final = 8
"""How many requests are in flight at once, at most."""
FRESH: Final = 1.0
"""Seconds after a success in which the next publish is expected to succeed, too."""


class PubsubPublisher:
    """Pub/Sub does not tell how much is unapplied, so this refuses only what would be too much in flight."""

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

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        """Retry for `patience` seconds, so an error means that something is wrong. Only what was never sent is reported
        as not taken: an error may follow an earlier try that was taken and not answered.
        """
        batches = requests([to_wire(message) for message in messages])
        size = sum(size for _, size in batches)
        self._admit(size)
        if self._in_flight_bytes <= self._max_in_flight_bytes // 2:
            self._drain.begins(asyncio.get_running_loop().time())
        self._in_flight_bytes += size
        try:
            await all_of(self._send(batch, check) for batch, _ in batches)
        finally:
            self._in_flight_bytes -= size
            self._drain.left(size, asyncio.get_running_loop().time())
        self._good = asyncio.get_running_loop().time()

    async def _send(self, batch: Sequence[Any], check: Check) -> None:
        unanswered: TransientError | None = None

        async def send(timeout: float) -> None:
            nonlocal unanswered
            try:
                check()
            except StoodStillError as error:
                raise unanswered or error from None
            try:
                await self._client.publish(self._topic, batch, timeout)
            except TransientError as error:
                unanswered = error
                raise

        async with self._slots:
            await patiently(send, self._patience)

    async def check(self) -> None:
        """Get the topic, unless a publish has just succeeded. Only if this account may not get it, ask whether it may
        publish: the emulator knows no permissions.
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

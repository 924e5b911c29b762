"""What tests put in the place of a part of the service: it fails, or waits until it may go on."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ingest.accept.admission import KnownIds
from shared.model.words import Message
from shared.ports.broker import Check, at_any_time
from tests.http.service import Service


def failing(error: Exception) -> Callable[..., Awaitable[Any]]:
    """A function that raises the error, whatever it is called with."""

    async def fail(*_: object) -> Any:
        raise error

    return fail


def forget(service: Service) -> None:
    """The ids that it knows, as after a restart, or as in another process."""
    service.ingest.publishing._known_ids = KnownIds()


class Gate:
    """Stands where the publisher was. A publish waits until the gate is `open`, and fails if there is an `error`."""

    def __init__(self, service: Service, patch: pytest.MonkeyPatch) -> None:
        self.open = asyncio.Event()
        self.reached = asyncio.Event()
        self.error: Exception | None = None
        self._publish = service.parts.publisher.publish
        patch.setattr(service.parts.publisher, "publish", self.publish)
        patch.setattr(service.parts.publisher, "check", self.check)

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        self.reached.set()
        await self.open.wait()
        await self.check()
        await self._publish(messages, check)

    async def check(self) -> None:
        if self.error is not None:
            raise self.error

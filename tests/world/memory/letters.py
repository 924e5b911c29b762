"""The dead letters of a `MemoryBroker`."""

from collections.abc import Sequence

from shared.model.buckets import Instant
from shared.model.words import Delivery, Letter
from tests.world.memory.broker import MemoryBroker


class MemoryDeadLetters:
    """One pass through the dead letters. They have no leases."""

    complete = True

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._last = 0

    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        letters: list[Letter] = []
        for number, letter in self._broker.letters(self._last):
            max_bytes -= len(letter.delivery.message.data)
            if len(letters) == limit or (max_bytes < 0 and letters):
                break
            self._last = number
            letters.append(letter)
        return letters

    def continue_after(self, token: str) -> None:
        self._last = int(token)

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        self._broker.forget_buried(tokens, floor)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        self._broker.rebury(delivery, reason)

    async def close(self) -> None:
        """Do nothing, since nothing is leased."""

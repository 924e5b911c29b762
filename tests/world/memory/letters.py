"""The dead letters of a `MemoryBroker`, and one that keeps them apart from the messages, as Pub/Sub does."""

from collections.abc import Sequence
from dataclasses import replace

from shared.model.buckets import BEGINNING, Instant
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


class BuriesApart(MemoryBroker):
    """Burying is publishing, then an ack; the one may happen without the other: so it may be done twice, and late."""

    _dead: dict[int, Letter]

    def _letters(self) -> dict[int, Letter]:
        return self.__dict__.setdefault("_dead", {})  # type: ignore[no-any-return] # as declared above

    async def bury(self, delivery: Delivery, reason: str) -> None:
        self._publish(delivery, reason)
        await self.ack([delivery.token], BEGINNING)

    def letters(self, after: int) -> list[tuple[int, Letter]]:
        return [(number, letter) for number, letter in self._letters().items() if number > after]

    def forget_buried(self, tokens: Sequence[str], floor: Instant) -> None:
        for token in tokens:
            self._letters().pop(int(token), None)

    def rebury(self, delivery: Delivery, reason: str) -> None:
        self._publish(delivery, reason)
        self.forget_buried([delivery.token], BEGINNING)

    def buried(self) -> dict[str, str]:
        return {str(number): letter.reason for number, letter in self._letters().items()}

    def _publish(self, delivery: Delivery, reason: str) -> None:
        self._last += 1
        self._letters()[self._last] = Letter(replace(delivery, token=str(self._last)), reason)

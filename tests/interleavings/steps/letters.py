"""Dead letters that are kept apart from the messages, as on Pub/Sub: a message may be buried twice, and late."""

from collections.abc import Sequence
from dataclasses import replace

from shared.model.buckets import BEGINNING, Instant
from shared.model.words import Delivery, Letter
from tests.world.memory.broker import MemoryBroker


class BuriesApart(MemoryBroker):
    """Burying is publishing, then an ack; the one may happen without the other."""

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

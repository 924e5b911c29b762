"""Ways through dead letters with one mistake each."""

from collections.abc import Sequence
from dataclasses import replace

from shared.model.buckets import BEGINNING, BrokerMillis, Instant
from shared.model.words import Delivery, Letter
from tests.world.memory.letters import MemoryDeadLetters


class HandsOutTheLiving(MemoryDeadLetters):
    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        for held in self._broker._messages.values():
            held.buried = held.buried or "because"
        return await super().pull(limit, max_bytes)


class HandsOutAgain(MemoryDeadLetters):
    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        found = await super().pull(limit, max_bytes)
        if not found and not self.__dict__.setdefault("twice", False):
            self.__dict__["twice"], self._last = True, 0
            return await super().pull(limit, max_bytes)
        return found


class ConsumesWhatItLists(MemoryDeadLetters):
    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        found = await super().pull(limit, max_bytes)
        await self.ack([letter.delivery.token for letter in found], BEGINNING)
        return found


class IgnoresLimits(MemoryDeadLetters):
    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        return await super().pull(10**6, 10**9)


class WantsAllBytesToFit(MemoryDeadLetters):
    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        found = await super().pull(limit, max_bytes)
        return found if sum(len(one.delivery.message.data) for one in found) <= max_bytes else ()


class StopsEarly(MemoryDeadLetters):
    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        return () if self._last else await super().pull(limit, max_bytes)


class ForgetsNothing(MemoryDeadLetters):
    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        return


class ForgetsAll(MemoryDeadLetters):
    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        await super().ack([str(number) for number, _ in self._broker.letters(0)], floor)


class ForgetsTheLiving(MemoryDeadLetters):
    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        for held in self._broker._messages.values():
            held.buried = held.buried or "because"
        await super().ack([*map(str, self._broker._messages)], floor)


class ForgetsWithoutAFloor(MemoryDeadLetters):
    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        await super().ack(tokens, BEGINNING)


class ForgetsTheEntryAgain(MemoryDeadLetters):
    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        pending = self._broker.pending
        gone = [token for token in tokens if not self._broker._is_buried(int(token))]
        await super().ack(tokens, floor)
        if gone:
            pending.settle([*pending._messages], floor)


class KeepsTheEntry(MemoryDeadLetters):
    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        pending, self._broker.pending = self._broker.pending, type(self._broker.pending)()
        await super().ack(tokens, floor)
        self._broker.pending = pending


class KeepsTheFirstReason(MemoryDeadLetters):
    async def bury(self, delivery: Delivery, reason: str) -> None:
        return


class DigsUp(MemoryDeadLetters):
    async def bury(self, delivery: Delivery, reason: str) -> None:
        self._broker._messages[int(delivery.token)].buried = None


class DropsWhatIsStillDead(MemoryDeadLetters):
    async def bury(self, delivery: Delivery, reason: str) -> None:
        await self.ack([delivery.token], BEGINNING)


class BuriesWhatIsGone(MemoryDeadLetters):
    async def bury(self, delivery: Delivery, reason: str) -> None:
        self._broker._messages[int(delivery.token)].buried = reason


class MakesUpTimes(MemoryDeadLetters):
    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        found = await super().pull(limit, max_bytes)
        return [replace(one, delivery=replace(one.delivery, published=BrokerMillis(1))) for one in found]


class MakesUpIds(MemoryDeadLetters):
    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        found = await super().pull(limit, max_bytes)
        return [
            replace(one, delivery=replace(one.delivery, message_id=f"dead-{number}"))
            for number, one in enumerate(found)
        ]


class LosesReasons(MemoryDeadLetters):
    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        return [replace(one, reason="dead") for one in await super().pull(limit, max_bytes)]


class BeginsAtTheLetterAgain(MemoryDeadLetters):
    def continue_after(self, token: str) -> None:
        super().continue_after(str(int(token) - 1))

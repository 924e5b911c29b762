"""Brokers with one mistake each."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from shared.model.buckets import BEGINNING, BrokerMillis, Instant
from shared.model.errors import OverloadedError
from shared.model.words import Delivery, Message
from shared.ports.broker import Check, at_any_time
from tests.world.memory.broker import MemoryBroker


class LosesOne(MemoryBroker):
    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        await super().publish(messages[:25])


class DoublesOne(MemoryBroker):
    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        await super().publish([*messages, *messages[:1]])


class ForgetsAttributes(MemoryBroker):
    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        await super().publish([replace(message, attributes={"number": "1"}) for message in messages])


class LeasesToEverybody(MemoryBroker):
    def _free(self) -> list[int]:
        return [number for number, held in self._messages.items() if held.buried is None]


class TakesStaleAcks(MemoryBroker):
    def _leased(self, token: str) -> Any:
        return self._messages.get(int(token.partition(".")[0]))


class NeverRedelivers(MemoryBroker):
    def _free(self) -> list[int]:
        return [number for number, held in self._messages.items() if held.attempt == 0 and held.buried is None]


class IgnoresTheLimit(MemoryBroker):
    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        return await super().pull(10**6, 10**9, wait)


class AcksAllOfAPull(MemoryBroker):
    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        await super().ack([f"{n}.{held.attempt}" for n, held in self._messages.items() if held.until > 0], floor)


class ForgetsToExtend(MemoryBroker):
    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        return


class KeepsWhatIsGivenBack(MemoryBroker):
    async def give_back(self, tokens: Sequence[str]) -> None:
        return


class BuriesNothing(MemoryBroker):
    async def bury(self, delivery: Delivery, reason: str) -> None:
        await self.ack([delivery.token], BEGINNING)


class TakesTooMuch(MemoryBroker):
    def _admit(self, size: int) -> None:
        return


class ForgetsAttempts(MemoryBroker):
    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        return [replace(held, attempt=1) for held in await super().pull(limit, max_bytes, wait)]


class RepeatsTokens(MemoryBroker):
    """One token for all leases of a message."""

    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        return [replace(held, token=f"{held.message_id}.0") for held in await super().pull(limit, max_bytes, wait)]

    def _leased(self, token: str) -> Any:
        held = self._messages.get(int(token.partition(".")[0]))
        return held if held and held.until > 0 else None


class IgnoresBytes(MemoryBroker):
    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        return await super().pull(limit, 10**9, wait)


class WantsAllBytesToFit(MemoryBroker):
    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        held = await super().pull(limit, max_bytes, wait)
        return held if sum(len(one.message.data) for one in held) <= max_bytes else ()


class NeverWaits(MemoryBroker):
    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        return await super().pull(limit, max_bytes, 0)


class SpoilsTheAckOfOthers(MemoryBroker):
    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        if all(self._leased(token) for token in tokens):
            await super().ack(tokens, floor)


class BuriesForAnybody(MemoryBroker):
    async def bury(self, delivery: Delivery, reason: str) -> None:
        self._messages[int(delivery.message_id)].buried = reason


class DigsUpWhatIsGivenBack(MemoryBroker):
    async def give_back(self, tokens: Sequence[str]) -> None:
        await super().give_back(tokens)
        for token in tokens:
            if held := self._messages.get(int(token.partition(".")[0])):
                held.buried = None


class RevivesLostLeases(MemoryBroker):
    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        for token in tokens:
            if held := self._messages.get(int(token.partition(".")[0])):
                held.until = self._clock.now() + seconds


class OnlyExtendsForLonger(MemoryBroker):
    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        if seconds > 1:
            await super().extend(tokens, seconds)


class TakesTheSecondOfOneOnce(MemoryBroker):
    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        await super().publish([replace(message, once=None) for message in messages])


class NeverFreesAOnce(MemoryBroker):
    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        taken = self.__dict__.setdefault("taken", set())
        for message in messages:
            if message.once is None or message.once not in taken:
                taken.add(message.once)
                await super().publish([message])


class DropsEqualMessages(MemoryBroker):
    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        there = [held.message for held in self._messages.values()]
        await super().publish([message for n, message in enumerate(messages) if message not in there + [*messages][:n]])


class ReusesIds(MemoryBroker):
    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        self._last = max(self._messages, default=0)
        await super().publish(messages, check)


class PublishedWhenPulled(MemoryBroker):
    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        now = BrokerMillis(int(self._clock.now() * 1000))
        return [replace(held, published=now) for held in await super().pull(limit, max_bytes, wait)]


class LeasesForAMoment(MemoryBroker):
    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        self._lease = 1
        return await super().pull(limit, max_bytes, wait)


class IsFilledByWhatIsBuried(MemoryBroker):
    def _admit(self, size: int) -> None:
        if (
            self._messages
            and size + sum(len(h.message.data) for h in self._messages.values()) > self._max_pending_bytes
        ):
            raise OverloadedError("full")

"""Overlays, and brokers that keep one, with one mistake each."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from shared.memory.broker import MemoryBroker, MemoryOverlay
from shared.words import Delivery, Message, View


class DropsTooEarly(MemoryBroker):
    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        held = await super().pull(limit, max_bytes, wait)
        self.pending.remove([int(delivery.message_id) for delivery in held], 0)
        return held


class DropsTooLate(MemoryBroker):
    async def ack(self, tokens: Sequence[str], floor: int) -> None:
        pending, self.pending = self.pending, type(self.pending)()
        await super().ack(tokens, floor)
        self.pending = pending


class LeavesTheFloor(MemoryBroker):
    async def ack(self, tokens: Sequence[str], floor: int) -> None:
        await super().ack(tokens, 0)


class DropsWhatIsBuried(MemoryBroker):
    async def bury(self, delivery: Delivery, reason: str) -> None:
        await super().bury(delivery, reason)
        self.pending.remove([int(delivery.message_id)], 0)


class NobodyIsLate(MemoryOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        views = await super().view(counters)
        return {
            counter: replace(found, entries=tuple(replace(entry, late=False) for entry in found.entries))
            for counter, found in views.items()
        }


class OneVersion(MemoryOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        return {counter: replace(found, version=1) for counter, found in (await super().view(counters)).items()}


class FallingFloor(MemoryBroker):
    async def ack(self, tokens: Sequence[str], floor: int) -> None:
        await super().ack(tokens, floor)
        self.pending._floor = floor
        self.pending._floors.clear()
        self.pending._views.clear()


class DropsOnAStaleAck(MemoryBroker):
    async def ack(self, tokens: Sequence[str], floor: int) -> None:
        await super().ack(tokens, floor)
        self.pending.remove([int(token.partition(".")[0]) for token in tokens], floor)


class DropsWhatIsGivenBack(MemoryBroker):
    async def give_back(self, tokens: Sequence[str]) -> None:
        await super().give_back(tokens)
        self.pending.remove([int(token.partition(".")[0]) for token in tokens], 0)


class ForgetsForeignMessages(MemoryBroker):
    async def publish(self, messages: Sequence[Message]) -> None:
        await super().publish(messages)
        foreign = [number for number, held in self._messages.items() if "ce-type" not in held.message.attributes]
        self.pending.remove(foreign, 0)


class ChokesOnRubbish(MemoryBroker):
    async def publish(self, messages: Sequence[Message]) -> None:
        await super().publish([message for message in messages if message.data != b"rubbish"])
        if any(message.data == b"rubbish" for message in messages):
            self.pending.remove([*self.pending._messages], 0)


class SaysItIsNotExact(MemoryOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        return {counter: replace(found, exact=False) for counter, found in (await super().view(counters)).items()}


class Torn(MemoryOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        views: dict[str, View] = {}
        for counter in counters:
            views |= await super().view([counter])
            await asyncio.sleep(0)
        return views


class OneOfEachKey(MemoryOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        return {
            counter: replace(found, entries=tuple({entry.key: entry for entry in found.entries}.values()))
            for counter, found in (await super().view(counters)).items()
        }


class NewestFirst(MemoryOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        return {
            counter: replace(found, entries=found.entries[::-1])
            for counter, found in (await super().view(counters)).items()
        }


class ForgetsIds(MemoryOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        return {
            counter: replace(found, entries=tuple(replace(entry, keyed=()) for entry in found.entries))
            for counter, found in (await super().view(counters)).items()
        }


class NamesAll(MemoryOverlay):
    async def names(self, prefix: str) -> Sequence[str]:
        return await super().names("")


class NamesForEver(MemoryOverlay):
    async def names(self, prefix: str) -> Sequence[str]:
        known = self.__dict__.setdefault("known", set())
        known.update(await super().names(prefix))
        return [*known]


class HoldsEverything(MemoryOverlay):
    async def holds(self, keys: Collection[str]) -> Collection[str]:
        return keys


class HoldsNothing(MemoryOverlay):
    async def holds(self, keys: Collection[str]) -> Collection[str]:
        return ()

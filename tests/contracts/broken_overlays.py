"""Overlays, and brokers that keep one, with one mistake each."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from shared.memory.overlay import ProcessOverlay
from shared.model.buckets import BEGINNING, Instant
from shared.model.envelope import Envelope
from shared.model.words import Delivery, Message, View
from shared.ports.broker import Check, at_any_time
from tests.world.memory.broker import MemoryBroker, MemoryOverlay


class DropsTooEarly(MemoryBroker):
    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        held = await super().pull(limit, max_bytes, wait)
        self.pending.settle([int(delivery.message_id) for delivery in held], BEGINNING)
        return held


class DropsTooLate(MemoryBroker):
    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        pending, self.pending = self.pending, type(self.pending)()
        await super().ack(tokens, floor)
        self.pending = pending


class LeavesTheFloor(MemoryBroker):
    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        await super().ack(tokens, BEGINNING)


class DropsWhatIsBuried(MemoryBroker):
    async def bury(self, delivery: Delivery, reason: str) -> None:
        await super().bury(delivery, reason)
        self.pending.settle([int(delivery.message_id)], BEGINNING)


class RaisesNoFloor(MemoryOverlay):
    async def changed(self, counters: Collection[str], time: Instant, receipt: str = "") -> None:
        """Only who asks would know."""


class RaisesItHere(MemoryOverlay):
    async def changed(self, counters: Collection[str], time: Instant, receipt: str = "") -> None:
        self.__dict__.setdefault("own", {}).update(dict.fromkeys(counters, time))

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        own = self.__dict__.get("own", {})
        views = await super().view(counters)
        return {name: replace(one, floor=max(one.floor, own.get(name, 0))) for name, one in views.items()}


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
    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        await super().ack(tokens, floor)
        self.pending._floor = floor
        self.pending._floors.clear()
        self.pending._views.clear()


class DropsOnAStaleAck(MemoryBroker):
    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        await super().ack(tokens, floor)
        self.pending.settle([int(token.partition(".")[0]) for token in tokens], floor)


class DropsWhatIsGivenBack(MemoryBroker):
    async def give_back(self, tokens: Sequence[str]) -> None:
        await super().give_back(tokens)
        self.pending.settle([int(token.partition(".")[0]) for token in tokens], BEGINNING)


class ForgetsForeignMessages(MemoryBroker):
    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        await super().publish(messages, check)
        foreign = [number for number, held in self._messages.items() if "ce-type" not in held.message.attributes]
        self.pending.settle(foreign, BEGINNING)


class ChokesOnRubbish(MemoryBroker):
    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        await super().publish([message for message in messages if message.data != b"rubbish"])
        if any(message.data == b"rubbish" for message in messages):
            self.pending.settle([*self.pending._messages], BEGINNING)


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
    async def names(
        self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        return await super().names("", after, limit, exact=exact)


class NamesFromTheBeginning(MemoryOverlay):
    async def names(
        self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        return await super().names(prefix, "", limit, exact=exact)


class NamesWithoutEnd(MemoryOverlay):
    async def names(
        self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        return await super().names(prefix, after, exact=exact)


class NamesBackwards(MemoryOverlay):
    async def names(
        self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        return (await super().names(prefix, after, limit, exact=exact))[::-1]


class NamesForEver(MemoryOverlay):
    async def names(
        self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        known = self.__dict__.setdefault("known", set())
        known.update(await super().names(prefix, after, limit, exact=exact))
        return [*known]


class HoldsEverything(MemoryOverlay):
    async def holds(self, keys: Collection[str]) -> Collection[str]:
        return keys


class HoldsNothing(MemoryOverlay):
    async def holds(self, keys: Collection[str]) -> Collection[str]:
        return ()


class ConfirmsAtOnce(ProcessOverlay):
    def _add(self, envelope: Envelope, *, confirmed: bool) -> int:
        number = super()._add(envelope, confirmed=confirmed)
        self._pending.confirm(number)
        return number


class WritesAfterwards(ProcessOverlay):
    @asynccontextmanager
    async def entered(self, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
        yield
        for envelope in envelopes:
            self._pending.confirm(self._add(envelope, confirmed=False))


class NeverConfirms(ProcessOverlay):
    @asynccontextmanager
    async def entered(self, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
        for envelope in envelopes:
            self._add(envelope, confirmed=False)
        yield


class NeverWithdraws(ProcessOverlay):
    def _forget(self, number: int) -> None:
        """It stays."""


class ConfirmsWhatFailed(ProcessOverlay):
    def _forget(self, number: int) -> None:
        self._pending.confirm(number)


class WithdrawsTheKey(ProcessOverlay):
    def _forget(self, number: int) -> None:
        keys, *_ = self._there[number]
        for other in sorted({other for key in keys for other in self._numbers[key]}):
            super()._forget(other)


class LetsGoneOnesBe(ProcessOverlay):
    @asynccontextmanager
    async def entered(self, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
        before = self._last
        async with super().entered(envelopes):
            yield
        for number in range(before + len(envelopes) + 1, self._last + 1):
            self._forget(number)


class NotLateWhenAnew(ProcessOverlay):
    def _add(self, envelope: Envelope, *, confirmed: bool) -> int:
        number = super()._add(envelope, confirmed=False)
        if confirmed:
            self._pending.confirm(number)
        return number


class SettlesWithoutAFloor(ProcessOverlay):
    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        await super().settle(settled, BEGINNING)


class RaisesNothing(ProcessOverlay):
    async def changed(self, counters: Collection[str], time: Instant, receipt: str = "") -> None:
        """Nothing."""


class RaisesAllFloors(ProcessOverlay):
    async def changed(self, counters: Collection[str], time: Instant, receipt: str = "") -> None:
        self._pending.settle([-1], time)


class SettlesAllFloors(ProcessOverlay):
    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        await super().settle(settled, time)
        self._pending.settle([-1], time)


class LowersFloors(ProcessOverlay):
    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        self._pending._floors.clear()
        self._pending._views.clear()
        await super().settle(settled, time)


class SettlesTheFirst(ProcessOverlay):
    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        some = [number for key in settled for number in sorted(self._numbers.get(key, ()))[:1]]
        for number in some:
            self._unlist(number)
        self._pending.settle(some, time)


class AlwaysUnsettled(ProcessOverlay):
    async def unsettled(self, limit: int) -> Mapping[str, str]:
        return dict.fromkeys([*self._numbers][:limit], "")


class NeverUnsettled(ProcessOverlay):
    async def unsettled(self, limit: int) -> Mapping[str, str]:
        return {}


class RoundsFloors(ProcessOverlay):
    """As one whose numbers are floats."""

    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        await super().settle(settled, Instant(int(float(time))))


class SaysExact(ProcessOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        return {counter: replace(found, exact=True) for counter, found in (await super().view(counters)).items()}


class NewVersions(ProcessOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        self._pending._views.clear()
        return await super().view(counters)


class ProcessOneVersion(ProcessOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        return {counter: replace(found, version=1) for counter, found in (await super().view(counters)).items()}


class ProcessNewestFirst(ProcessOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        views = await super().view(counters)
        return {counter: replace(found, entries=found.entries[::-1]) for counter, found in views.items()}


class ProcessNamesAll(ProcessOverlay):
    async def names(
        self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        return await super().names("", after, limit, exact=exact)


class ProcessHoldsEverything(ProcessOverlay):
    async def holds(self, keys: Collection[str]) -> Collection[str]:
        return keys


class TearsViews(ProcessOverlay):
    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        views: dict[str, View] = {}
        for counter in counters:
            views |= await super().view([counter])
            await asyncio.sleep(0)
        return views

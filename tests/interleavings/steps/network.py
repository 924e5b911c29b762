"""A network between the parts and the fakes, on which the test decides what arrives, when, and what is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from shared.memory.overlay import ProcessOverlay
from shared.model.buckets import Instant
from shared.model.errors import InexactError, TransientError
from shared.model.words import Delivery, Envelope, Letter, Message, View
from shared.ports.broker import Check, at_any_time
from shared.ports.store import Snapshot
from tests.world.memory.broker import KeptByBroker, MemoryBroker, MemoryOverlay
from tests.world.memory.letters import MemoryDeadLetters
from tests.world.memory.store import MemoryStore


@dataclass(eq=False)
class Call:
    """A request on its way. It may arrive although its caller has given up, or is dead."""

    owner: str
    name: str
    effect: Callable[[], Awaitable[Any]]
    answer: "asyncio.Future[Any] | None"


@dataclass
class Network:
    """`calls` are those that have not arrived."""

    calls: list[Call] = field(default_factory=list)
    once: frozenset[str] = frozenset()
    """Calls that are one transaction on this machine."""

    async def call(self, owner: str, name: str, effect: Callable[[], Awaitable[Any]]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls.append(Call(owner, name, effect, answer))
        return await answer

    async def arrive(self, call: Call, *, lose_answer: bool = False) -> None:
        """It happens now."""
        self.calls.remove(call)
        try:
            result = await call.effect()
        except Exception as error:
            self._answer(call, error)
        else:
            self._answer(call, TransientError("no answer") if lose_answer else result)

    def lose(self, call: Call, *, for_good: bool) -> None:
        """Its caller is told that it failed; unless `for_good`, it will arrive later."""
        self.calls.remove(call)
        if not for_good:
            self.calls.append(Call(call.owner, call.name, call.effect, None))
        self._answer(call, TransientError("connection lost"))

    def orphan(self, owner: str) -> None:
        """The owner is dead; what it sent is still under way."""
        for call in self.calls:
            if call.owner == owner:
                call.answer = None

    @staticmethod
    def _answer(call: Call, result: Any) -> None:
        if call.answer is None or call.answer.done():
            return
        if isinstance(result, Exception):
            call.answer.set_exception(result)
        else:
            call.answer.set_result(result)


class RemoteBroker:
    """Publisher and subscription of one process."""

    def __init__(self, network: Network, owner: str, broker: MemoryBroker) -> None:
        self._network, self._owner, self._broker = network, owner, broker

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        def publish() -> Awaitable[None]:
            return self._broker.publish(messages, check if "publish" in self._network.once else at_any_time)

        check()  # what has left the process can't be called back, unless it is one transaction
        await self._network.call(self._owner, "publish", publish)

    async def check(self) -> None:
        await self._network.call(self._owner, "check", self._broker.check)

    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        pulled: Sequence[Delivery] = await self._network.call(
            self._owner, "pull", lambda: self._broker.pull(limit, max_bytes, 0)
        )
        return pulled

    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        await self._network.call(self._owner, "extend", lambda: self._broker.extend(tokens, seconds))

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        await self._network.call(self._owner, "ack", lambda: self._broker.ack(tokens, floor))

    async def give_back(self, tokens: Sequence[str]) -> None:
        await self._network.call(self._owner, "give back", lambda: self._broker.give_back(tokens))

    async def bury(self, delivery: Delivery, reason: str) -> None:
        await self._network.call(self._owner, "bury", lambda: self._broker.bury(delivery, reason))


class RemoteDeadLetters:
    """A way through the dead letters, of one process."""

    complete = True

    def __init__(self, network: Network, owner: str, broker: MemoryBroker) -> None:
        self._network, self._owner, self._letters = network, owner, MemoryDeadLetters(broker)
        self._reburied: set[str] = set()

    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        while True:
            found: Sequence[Letter] = await self._network.call(
                self._owner, "letters", lambda: self._letters.pull(limit, max_bytes)
            )
            new = [letter for letter in found if letter.delivery.message_id not in self._reburied]
            if new or not found:
                return new

    def continue_after(self, token: str) -> None:
        self._letters.continue_after(token)

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        await self._network.call(self._owner, "forget", lambda: self._letters.ack(tokens, floor))

    async def bury(self, delivery: Delivery, reason: str) -> None:
        self._reburied.add(delivery.message_id)
        await self._network.call(self._owner, "bury again", lambda: self._letters.bury(delivery, reason))

    async def close(self) -> None:
        """Nothing is held."""


class RemoteOverlay(KeptByBroker):
    """The overlay as one process sees it."""

    def __init__(self, network: Network, owner: str, overlay: MemoryOverlay | ProcessOverlay) -> None:
        self._network, self._owner, self._overlay = network, owner, overlay

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        views: Mapping[str, View] = await self._network.call(self._owner, "view", lambda: self._overlay.view(counters))
        return views

    async def names(
        self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        found: Sequence[str] = await self._network.call(
            self._owner, "names", lambda: self._overlay.names(prefix, after, limit, exact=exact)
        )
        return found

    async def under(self, prefixes: Collection[str]) -> tuple[Mapping[str, View], View]:
        found: tuple[Mapping[str, View], View] = await self._network.call(
            self._owner, "under", lambda: self._overlay.under(prefixes)
        )
        return found

    async def holds(self, keys: Collection[str]) -> Collection[str]:
        return await self._overlay.holds(keys)


class RemoteWrittenOverlay(RemoteOverlay):
    """An overlay that processes write, as one of them sees it: each step may come late, or twice, or be lost."""

    _overlay: ProcessOverlay

    @asynccontextmanager
    async def entered(self, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
        numbers: Sequence[int] = await self._call("begin", lambda: self._overlay.begin(envelopes))
        try:
            yield
        except Exception:
            with contextlib.suppress(TransientError):
                await self._call("withdraw", lambda: self._overlay.withdraw(numbers))
            raise
        await self._call("confirm", lambda: self._overlay.confirm(numbers, envelopes))

    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        await self._network.call(self._owner, "settle", lambda: self._overlay.settle(settled, time))

    async def mark(self, receipt: str, counters: Collection[str], epoch: str | None = None) -> str | None:
        try:
            await self._network.call(self._owner, "mark", lambda: self._overlay.mark(receipt, counters, epoch))
        except TransientError as error:
            raise InexactError("no mark") from error
        return None

    async def changed(self, counters: Collection[str], time: Instant, receipt: str = "") -> None:
        await self._network.call(self._owner, "raise", lambda: self._overlay.changed(counters, time, receipt))

    async def unsettled(self, limit: int) -> Mapping[str, str]:
        return await self._overlay.unsettled(limit)

    async def _call(self, name: str, effect: Callable[[], Any]) -> Any:
        async def arrived() -> Any:
            return effect()

        return await self._network.call(self._owner, name, arrived)


class Remote:
    """A server as one process sees it: methods in `names` are called over the network, by the names given there."""

    def __init__(self, network: Any, owner: str, server: Any, names: Mapping[str, str]) -> None:
        self._network, self._owner, self._server, self._names = network, owner, server, names

    def __getattr__(self, name: str) -> Any:
        its = getattr(self._server, name)
        if name not in self._names:
            return its

        async def call(*arguments: Any, **options: Any) -> Any:
            return await self._network.call(self._owner, self._names[name], partial(its, *arguments, **options))

        return call


class _RemoteStore(Remote):
    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Remote]:
        """Its instant is chosen; what is read of it arrives when the network lets it."""

        async def choose() -> Snapshot:
            async with self._server.snapshot() as snapshot:
                return cast(Snapshot, snapshot)

        chosen = await self._network.call(self._owner, "snapshot", choose)
        yield Remote(self._network, self._owner, chosen, {"read": "read", "counts": "read"})

    async def largest(self, snapshot: Remote, *asked: Any) -> Any:
        return await self._network.call(self._owner, "read", partial(self._server.largest, snapshot._server, *asked))


_OF_STORES: Final = ("apply", "receipts", "applied", "dead", "marks", "shards", "compact")


def remote_store(network: Any, owner: str, store: MemoryStore) -> Any:
    names = {name: name for name in _OF_STORES} | {"close_periods": "close", "deleted_among": "deleted among"}
    return _RemoteStore(network, owner, store, names)

"""A network between the parts and the fakes, on which the test decides what arrives, when, and what is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from shared.memory import ProcessOverlay
from shared.model.errors import InexactError, TransientError
from shared.model.words import Delivery, Envelope, Letter, Message
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


def named(*names: str, **others: str) -> Mapping[str, str]:
    """Calls that are called like the methods; and `others`."""
    return {name: name for name in names} | others


class Remote:
    """A server as one process sees it: methods in `calls` are called over the network, by the names given there."""

    calls: Mapping[str, str]

    def __init__(self, network: Any, owner: str, server: Any, calls: Mapping[str, str] | None = None) -> None:
        self._network, self._owner, self._server = network, owner, server
        if calls is not None:
            self.calls = calls

    def __getattr__(self, name: str) -> Any:
        its = getattr(self._server, name)
        if name not in self.calls:
            return its

        async def call(*arguments: Any, **options: Any) -> Any:
            return await self._call(self.calls[name], partial(its, *arguments, **options))

        return call

    async def _call(self, name: str, effect: Callable[[], Awaitable[Any]]) -> Any:
        return await self._network.call(self._owner, name, effect)


class RemoteBroker(Remote):
    """Publisher and subscription."""

    calls = named("check", "extend", "ack", "bury", give_back="give back")

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        once = "publish" in self._network.once
        check()  # what has left the process can't be called back, unless it is one transaction
        await self._call("publish", lambda: self._server.publish(messages, check if once else at_any_time))

    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        pulled: Sequence[Delivery] = await self._call("pull", lambda: self._server.pull(limit, max_bytes, 0))
        return pulled


class RemoteDeadLetters(Remote):
    """A way through the dead letters."""

    calls = named(ack="forget")

    def __init__(self, network: Any, owner: str, broker: MemoryBroker) -> None:
        super().__init__(network, owner, MemoryDeadLetters(broker))
        self._reburied: set[str] = set()

    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        while True:
            found: Sequence[Letter] = await self._call("letters", lambda: self._server.pull(limit, max_bytes))
            new = [letter for letter in found if letter.delivery.message_id not in self._reburied]
            if new or not found:
                return new

    async def bury(self, delivery: Delivery, reason: str) -> None:
        self._reburied.add(delivery.message_id)
        await self._call("bury again", lambda: self._server.bury(delivery, reason))


class _RemoteOverlay(KeptByBroker, Remote):
    calls = named("view", "names", "under")


class _RemoteWrittenOverlay(Remote):
    """An overlay that processes write: each step may come late, or twice, or be lost."""

    calls = named("view", "names", "under", "settle", changed="raise")

    @asynccontextmanager
    async def entered(self, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
        numbers: Sequence[int] = await self._step("begin", envelopes)
        try:
            yield
        except Exception:
            with contextlib.suppress(TransientError):
                await self._step("withdraw", numbers)
            raise
        await self._step("confirm", numbers, envelopes)

    async def mark(self, receipt: str, counters: Collection[str], epoch: str | None = None) -> str | None:
        try:
            await self._call("mark", lambda: self._server.mark(receipt, counters, epoch))
        except TransientError as error:
            raise InexactError("no mark") from error
        return None

    async def _step(self, name: str, *what: Any) -> Any:
        async def arrived() -> Any:
            return getattr(self._server, name)(*what)

        return await self._call(name, arrived)


def remote_overlay(network: Any, owner: str, overlay: MemoryOverlay | ProcessOverlay) -> Any:
    kind = _RemoteWrittenOverlay if isinstance(overlay, ProcessOverlay) else _RemoteOverlay
    return kind(network, owner, overlay)


class _RemoteStore(Remote):
    calls = named(
        *("apply", "receipts", "applied", "dead", "marks", "shards", "compact"),
        close_periods="close",
        deleted_among="deleted among",
    )

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Remote]:
        """Its instant is chosen; what is read of it arrives when the network lets it."""

        async def choose() -> Snapshot:
            async with self._server.snapshot() as snapshot:
                return cast(Snapshot, snapshot)

        chosen = await self._call("snapshot", choose)
        yield Remote(self._network, self._owner, chosen, named("read", counts="read"))

    async def largest(self, snapshot: Remote, *asked: Any) -> Any:
        return await self._call("read", partial(self._server.largest, snapshot._server, *asked))


def remote_store(network: Any, owner: str, store: MemoryStore) -> Any:
    return _RemoteStore(network, owner, store)

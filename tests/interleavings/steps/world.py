"""Several ingests and flushers on one broker and one store, moved step by step, and what must be true of them.

Each increment has a delta of its own, so that a total says which increments it holds, and of which set it is: see
`changes`.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flusher.dead_letters.desk import Replay, drop
from flusher.dead_letters.letters import open_letter, open_receipt
from flusher.flush.commit_loop import FlushTools
from flusher.flush.flusher import Flusher
from flusher.flush.window import FlushPolicy
from ingest.accept.drafts import Draft, Pace
from ingest.accept.publishing import Publishing
from shared.counters.reader import Reader
from shared.counters.series import SeriesReader
from shared.counters.setter import SET, ChangeRequest, Compactor, Setter
from shared.model.buckets import BEGINNING, DAY, Instant, Millis
from shared.model.errors import CountersinkError, RefusedError, TransientError
from shared.model.receipts import key_of_set, promised
from shared.model.words import Commit, Increment, Letter
from shared.ports.broker import DeadLetters
from shared.runtime.retry import Backoff
from tests.contracts.store import total
from tests.interleavings.simulation.history import History
from tests.interleavings.simulation.loop import OWNER
from tests.interleavings.steps.changes import BASE, ChangedStore
from tests.interleavings.steps.network import Network, RemoteBroker, RemoteDeadLetters, remote_overlay, remote_store
from tests.world.flushing import tools_of
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.exact_overlay import ExactOverlay
from tests.world.memory.letters import BuriesApart
from tests.world.series import ALL_KEPT, everything

COUNTERS = ("a", "b")
POISON = "poison"


class PickyStore(ChangedStore):
    """Refuses one counter, until it is cured."""

    picky = True

    async def apply(self, commit: Commit) -> Instant:
        if self.picky and any(add.counter == POISON for add in commit.adds):
            raise RefusedError("poison")
        return await super().apply(commit)


@dataclass
class Process:
    """What a crash ends."""

    owner: str
    doing: set[str] = field(default_factory=set, kw_only=True)


@dataclass
class IngestProcess(Process):
    publishing: Publishing = field(kw_only=True)
    reader: Reader = field(kw_only=True)
    series: SeriesReader = field(kw_only=True)
    setter: Setter = field(kw_only=True)


@dataclass
class FlusherProcess(Process):
    flusher: Flusher = field(kw_only=True)


@dataclass
class ReplayProcess(Process):
    """Somebody who says `dlq replay --all` again and again."""

    tools: FlushTools = field(kw_only=True)
    letters: Callable[[], DeadLetters] = field(kw_only=True)

    async def run(self) -> None:
        letters = self.letters()
        replay = Replay(self.tools, letters)
        while found := await letters.pull(2, 10**6):
            await replay.run([open_letter(letter, "memory") for letter in found])
        after = ""
        while page := await self.tools.store.dead(after, 2):
            await replay.run([open_receipt(receipt) for receipt in page])
            after = page[-1].key


class World:
    """Everything, and a loop of its own that only runs when told to."""

    def __init__(self, *, ingests: int = 2, written: bool = False) -> None:
        """`written`: ingests write the overlay, which they share; otherwise the broker's messages are the overlay."""
        self.written = written
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(self._tagged)
        self.tasks: dict[asyncio.Future[Any], str] = {}
        self.clock = ManualClock()
        self.network = Network()
        self.history = History(exactly=written)
        self.random = random.Random(1)
        self.named: dict[tuple[str, str], int] = {}
        self.asked: dict[str, tuple[int, int, int]] = {}
        """The state in which a set was first asked for, by the receipt of the set."""
        self.mistakes: list[BaseException] = []
        self.reads_checked = True
        self.born = 0

        async def build() -> None:
            self.broker = (BuriesApart if written else MemoryBroker)(self.clock)
            self.store = PickyStore(self.clock, None if written else self.broker)
            self.overlay = ExactOverlay(self.clock) if written else MemoryOverlay(self.broker)
            self.ingests = [self._ingest() for _ in range(ingests)]
            self.flushers = [self._flusher() for _ in range(2)]
            self.replayers = [self._replayer() for _ in range(2)]

        self.loop.run_until_complete(build())

    def _ingest(self) -> IngestProcess:
        owner, pick = self._name("ingest"), self.random.randrange
        broker: Any = RemoteBroker(self.network, owner, self.broker)
        store = remote_store(self.network, owner, self.store)
        overlay = remote_overlay(self.network, owner, self.overlay)
        reader = Reader(store, overlay, self.clock, cache_ttl=1.0)
        backoff = partial(self._backoff, owner)
        return IngestProcess(
            owner,
            setter=Setter(reader, store, overlay, self.clock, DAY, pick=pick, backoff=backoff),
            publishing=Publishing(broker, overlay, self.clock, pace=Pace(0, metered=False), max_waiting=1000),
            reader=reader,
            series=SeriesReader(store, overlay, self.clock, ALL_KEPT),
        )

    def _flusher(self) -> FlusherProcess:
        owner = self._name("flusher")
        flusher = Flusher(self._tools(owner), FlushPolicy(1.0, 100, 10**6), topic="memory", lease=60.0)
        return FlusherProcess(owner, flusher=flusher)

    def _replayer(self) -> ReplayProcess:
        owner = self._name("replayer")
        letters: Any = partial(RemoteDeadLetters, self.network, owner, self.broker)
        return ReplayProcess(owner, tools=self._tools(owner), letters=letters)

    def _tools(self, owner: str) -> FlushTools:
        broker: Any = RemoteBroker(self.network, owner, self.broker)
        return tools_of(
            remote_store(self.network, owner, self.store),
            broker,
            remote_overlay(self.network, owner, self.overlay),
            self.clock,
            pick=self.random.randrange,
            backoff=partial(self._backoff, owner),
            one_file=True,
            rules=ALL_KEPT,
        )

    def _backoff(self, owner: str) -> Backoff:
        async def pause(_: float) -> None:
            await self.network.call(owner, "backoff", _nothing)

        return Backoff(sleep=pause, jitter=lambda: 0.0)

    def _name(self, kind: str) -> str:
        self.born += 1
        return f"{kind}-{self.born}"

    def settle(self) -> None:
        """Run until everybody waits for the network."""

        async def turns() -> None:
            for _ in range(12):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.loop.run_until_complete(coroutine)
        self.settle()

    def _tagged(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        task = asyncio.Task(coroutine, loop=loop, **options)
        self.tasks[task] = OWNER.get()
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Future[Any]") -> None:
        owner = self.tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if owner != "nobody" and error is not None and not isinstance(error, TransientError):
            self.mistakes.append(error)

    def start(self, process: Process, coroutine: Coroutine[Any, Any, None]) -> None:
        """A task of the process."""
        token = OWNER.set(process.owner)
        self.loop.create_task(coroutine)
        OWNER.reset(token)
        self.settle()

    def raise_mistakes(self) -> None:
        """What failed in a task that nobody waits for."""
        for error in self.mistakes:
            raise error

    def accept(self, ingest: IngestProcess, counter: str, bit: int, add: Callable[[], Draft]) -> None:
        """A client's request, and what it knows at the end of it."""

        async def request() -> None:
            try:
                await ingest.publishing.durable(add())
            except CountersinkError:
                return
            self.history.answered(counter, bit)

        self.start(ingest, request())

    def increment(self, ingest: IngestProcess, counter: str) -> None:
        bit = self.history.tries(counter)
        self.accept(ingest, counter, bit, lambda: ingest.publishing.add(counter, bit * bit))

    def send_keyed(self, ingest: IngestProcess, counter: str, client_id: str) -> None:
        """The first time it is new, after that it is a retry."""
        if (counter, client_id) not in self.named:
            self.named[counter, client_id] = self.history.tries(counter)
        bit = self.named[counter, client_id]
        item = Increment(counter, bit * bit, client_id)
        self.accept(ingest, counter, bit, lambda: ingest.publishing.add_keyed(item))

    def pull(self, index: int) -> None:
        process = self.flushers[index]
        self._one_at_a_time(process, "pull", lambda: process.flusher.pull_once(0))

    def flush(self, index: int) -> None:
        process = self.flushers[index]
        self._one_at_a_time(process, "flush", process.flusher.flush_once)

    def replay(self, index: int) -> None:
        """All that is found, two letters at a time."""
        process = self.replayers[index]
        self._one_at_a_time(process, "replay", process.run)

    def replay_cured(self, index: int = 0) -> None:
        """The cause of all letters is gone, and everything arrives."""
        self.store.picky = False
        self.replay(index)
        self.deliver_all()

    def _one_at_a_time(self, process: Process, what: str, step: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        async def do() -> None:
            await self.survive(step())
            process.doing.remove(what)

        if what not in process.doing:
            process.doing.add(what)
            self.start(process, do())

    def lose_letters(self) -> None:
        """The broker has kept them for as long as it does: what they stand for is in the store, so nothing is lost."""
        assert isinstance(self.broker, BuriesApart)

        def over(letter: Letter) -> bool:
            keys = open_letter(letter, "memory").receipt_keys()
            return all(
                key in self.store._receipts and self.store._receipts[key].settled for key in keys if key[0] != "i"
            )

        self.broker.forget_buried([str(number) for number, one in self.broker.letters(0) if over(one)], BEGINNING)

    def drop_dead(self, index: int) -> None:
        """Somebody gives up for good all that the store has of what is dead."""
        process = self.replayers[index]

        async def run() -> None:
            for receipt in await process.tools.store.dead("", 100):
                envelopes = open_receipt(receipt).envelopes
                await drop(process.tools.store, process.tools.overlay, envelopes, promised(Millis(7 * DAY), DAY))

        self.start(process, self.survive(run()))

    @staticmethod
    async def survive(step: Coroutine[Any, Any, Any]) -> None:
        with contextlib.suppress(TransientError):
            await step

    async def grow(self, counter: str, num_shards: int) -> None:
        await self.store.raise_shards(counter, num_shards)

    async def compact(self, counter: str, num_shards: int) -> None:
        await Compactor(self.store, self.clock, Millis(7 * DAY)).compact(counter, num_shards)

    def read(self, ingest: IngestProcess, counters: list[str], max_age: float | None, *, at_rest: bool = False) -> None:
        """The history knows what must be in it."""
        before = {name: self.history.before(name, ingest.owner) for name in counters}

        async def request() -> None:
            try:
                readings = await ingest.reader.read(counters, max_age)
            except CountersinkError:
                return
            for reading in readings if self.reads_checked else ():
                epochs = self.store.epochs(reading.name)
                self.history.read(reading, ingest.owner, before[reading.name], epochs, at_rest=at_rest)

        self.start(ingest, request())

    def read_series(self, ingest: IngestProcess, counter: str) -> None:
        answered = self.history.before(counter, "")[0]

        async def request() -> None:
            try:
                series = await ingest.series.read(everything(counter))
            except CountersinkError:
                return
            assert series.exact
            self.history.read_series(series, answered)

        self.start(ingest, request())

    def set(self, ingest: IngestProcess, counter: str, kind: str, key: str | None = None) -> None:
        """The value before holds all that was answered before it was asked for first, and a retry is told the same."""
        number = self.history.sets(counter)
        wish = ChangeRequest(kind, BASE * number if kind == SET else 0, key or f"own-{number}")
        receipt = key_of_set(counter, kind, wish.key or "")
        before = self.asked.setdefault(receipt, self.history.before(counter, ""))

        async def request() -> None:
            try:
                change = await ingest.setter.set(counter, wish)
            except CountersinkError:
                return
            assert change == self.store.changes[counter][receipt], "the answer is not what was done"
            now = self.store.epoch_of(counter, receipt)
            self.history.was_set(counter, self.store.epochs(counter), now, before)

        self.start(ingest, request())

    def crash(self, process: Process) -> None:
        """Its tasks and memory are gone; what it sent may still arrive."""
        self.network.orphan(process.owner)
        for task in [task for task, owner in self.tasks.items() if owner == process.owner]:
            task.cancel()
        self.settle()

    def crash_ingest(self, index: int) -> None:
        self._replace(self.ingests, index, self._ingest)

    def crash_flusher(self, index: int) -> None:
        self._replace(self.flushers, index, self._flusher)

    def crash_replayer(self, index: int) -> None:
        self._replace(self.replayers, index, self._replayer)

    def _replace(self, processes: list[Any], index: int, make: Callable[[], Process]) -> None:
        async def replace() -> None:
            processes[index] = make()

        self.crash(processes[index])
        self.run(replace())

    def deliver_all(self) -> None:
        while self.network.calls:
            self.run(self.network.arrive(self.network.calls[0]))

    def arrives_of(self, owner: str, but: str = "") -> None:
        """All that this process sends arrives, and what it sends then."""
        while calls := [call for call in self.network.calls if call.owner == owner and call.name != but]:
            self.run(self.network.arrive(calls[0]))

    def next_arrives(self, owner: str, name: str) -> None:
        """The next call of this process is `name`."""
        call = next(call for call in self.network.calls if call.owner == owner)
        assert call.name == name
        self.run(self.network.arrive(call))

    def through(self, ingest: IngestProcess, but: str = "") -> None:
        """All that it sends arrives. It stops at calls of the name `but`, of which there is one then."""
        self.arrives_of(ingest.owner, but)
        if but:
            assert [call.name for call in self.network.calls if call.owner == ingest.owner] == [but]

    def count(self, ingest: IngestProcess, counter: str = "a") -> None:
        self.increment(ingest, counter)
        self.through(ingest)

    def count_keyed(self, ingest: IngestProcess, counter: str, client_id: str) -> None:
        self.send_keyed(ingest, counter, client_id)
        self.through(ingest)

    def look(self, ingest: IngestProcess, counter: str = "a", max_age: float = 60.0) -> None:
        """A reading gets its answer, which is exact and holds all that was answered once."""
        self.read(ingest, [counter], max_age)
        self.through(ingest)
        self.raise_mistakes()

    def flush_until(self, index: int, name: str) -> None:
        """A flusher pulls and flushes what there is, up to calls of this name."""
        owner = self.flushers[index].owner
        self.pull(index)
        self.arrives_of(owner)
        self.flush(index)
        self.arrives_of(owner, but=name)

    def apply_all(self, index: int = 0, *, acks: bool = True) -> None:
        """A flusher applies what it gets, undisturbed."""
        owner = self.flushers[index].owner
        for _ in range(20):
            self.arrives_of(owner)
            self.flush_until(index, "" if acks else "ack")

    def store_total(self, counter: str) -> int:
        """What has been applied."""
        return self.loop.run_until_complete(total(self.store, counter))

    def finish(self) -> None:
        """Let everything arrive, apply everything, and compare."""
        self.deliver_all()
        for _ in range(300):
            if not self.broker.unburied():
                break
            self.broker.expire_leases()
            self.pull(0)
            self.deliver_all()
            self.flush(0)
            self.deliver_all()
        else:
            raise AssertionError("messages stay in the broker")
        self.store.picky = False
        for _ in range(10):
            if not self.broker.buried() and not self.store._bodies:
                break
            self.replay(0)
            self.deliver_all()
        else:
            raise AssertionError("dead letters stay")
        self.clock.turn(1)  # no base is from before
        self.reads_checked = True
        for name in (*COUNTERS, POISON):
            self.read(self.ingests[0], [name], 0, at_rest=True)
            self.read_series(self.ingests[0], name)
            self.deliver_all()
        self.raise_mistakes()
        for process in (*self.ingests, *self.flushers, *self.replayers):
            self.crash(process)
        self.loop.close()


async def _nothing() -> None:
    """What a pause does."""

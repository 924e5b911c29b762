"""A change that one process on a file has shown is in every later exact reading of another, even if it was killed."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from countersink_server.move.importer import Importer, ImportOptions
from flusher.dead_letters.desk import drop
from flusher.jobs import Adding, Resetting
from shared.counters.reader import Reader
from shared.counters.setter import DELETE, RESET, SET, ChangeRequest, Setter
from shared.model.buckets import DAY, BrokerMillis, Instant, Millis, StoreMillis
from shared.model.dead_letters import with_body
from shared.model.jobs import ADD, Job, lifetime_of_job
from shared.model.moving import Foreign
from shared.model.receipts import promised
from shared.model.words import DEAD, Commit, Envelope, Receipt, ShardAdd
from shared.sqlite.broker import SqliteOverlay
from shared.sqlite.database import Database
from shared.sqlite.store import SqliteStore
from tests.world.manual_clock import ManualClock

LIVE = Millis(16 * DAY)
LATER = StoreMillis(10**14)
LETTER = Envelope("dead", {"a": 4}, {"a": 1})


class KilledError(BaseException):
    """The process was killed."""


class MortalStore(SqliteStore):
    """Its process may be killed right after the next commit."""

    mortal = False

    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(commit)
        if self.mortal:
            raise KilledError
        return time


class Process:
    """One process on the file."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.database = Database(path)
        self.store = MortalStore(self.database, self.clock)
        self.overlay = SqliteOverlay(self.database, "t")
        self.reader = Reader(self.store, self.overlay, self.clock, 60.0)
        self.setter = Setter(self.reader, self.store, self.overlay, self.clock, LIVE)

    async def read(self, max_age: float = 60.0) -> tuple[int, bool]:
        (reading,) = await self.reader.read(["a"], max_age)
        return reading.value, reading.exact

    def job(self, kind: str) -> Job:
        now = int(self.clock.now() * 1_000)
        return Job("j", kind, "", 10, now, StoreMillis(now + lifetime_of_job(kind, LIVE)))


class OneCounter:
    """A source of an import."""

    name = "elsewhere"

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        yield Foreign(f"{prefix}a", 7)

    async def counter(self, name: str) -> Foreign | None:
        return Foreign(name, 7)


async def imported(process: Process) -> None:
    what = process.store, process.overlay, process.clock, ImportOptions(LIVE)
    await Importer(OneCounter(), *what, pick=lambda _: 0).run("", lambda _: None)


CHANGES: dict[str, Callable[[Process], Awaitable[object]]] = {
    "set": lambda one: one.setter.set("a", ChangeRequest(SET, 50)),
    "reset": lambda one: one.setter.set("a", ChangeRequest(RESET)),
    "delete": lambda one: one.setter.set("a", ChangeRequest(DELETE)),
    "reset job": lambda one: Resetting(one.setter)(one.job(RESET), ["a"]),
    "delete job": lambda one: Resetting(one.setter)(one.job(DELETE), ["a"]),
    "add job": lambda one: Adding(one.store, one.reader, one.overlay, exact=True)(one.job(ADD), ["a"]),
    "drop": lambda one: drop(one.store, one.overlay, [LETTER], promised(DAY, DAY)),
    "import": imported,
}


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[list[Process]]:
    """Two processes, and a counter of 3 with a dead letter of 4."""
    both = [Process(tmp_path / "countersink.db") for _ in range(2)]
    dead = with_body(Receipt(LETTER.key, LATER, DEAD), LETTER, "why", BrokerMillis(0))
    await both[0].store.apply(Commit((Receipt("k", LATER), dead), (ShardAdd("a", 0, 3, 1),)))
    yield both
    for one in both:
        await one.database.close()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("killed", [False, True], ids=["done", "killed after its commit"])
async def test_what_one_process_shows_another_does_not_unsee(
    processes: list[Process], change: str, *, killed: bool
) -> None:
    one, other = processes
    assert await other.read() == await one.read() == (7, True)
    one.store.mortal = killed
    if killed:
        with pytest.raises((KilledError, BaseExceptionGroup)):
            await CHANGES[change](one)
    else:
        await CHANGES[change](one)
    shown, exact = await one.read(0)
    assert shown != 7
    assert exact
    assert await other.read() == (shown, True)

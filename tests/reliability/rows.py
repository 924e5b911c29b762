"""What a row of the table is: a fault, the fleet that it is done to, and what came of it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.processes.fleet.pairs import Pair
    from tests.reliability.scene import Scene

SQLITE: Final = "sqlite"
CLOUD: Final = "firestore"
PAIRS: Final = {SQLITE: "SQLite", CLOUD: "Pub/Sub + Firestore-mode emulators"}
"""By the names that rows use."""
ALL: Final = (SQLITE, CLOUD)

Within = Callable[["Scene"], Sequence[str]]


@dataclass(frozen=True)
class Clients:
    """Who sends and reads while the fault is done. Each waits `pace` seconds between two requests."""

    insistent: int = 6
    """Plain HTTP: ids, keys, batches; sends again under the same ids, to any ingest, until it is told 202."""
    product: int = 2
    """`countersink.AsyncClient`, which must never raise."""
    careless: int = 2
    """Increments without an id, sent once."""
    foreign: int = 1
    """Publish on the topic themselves; some of it can't be read."""
    readers: int = 2
    pace: float = 0.08
    items: int = 5
    """Increments of a batch."""
    counters: int = 3
    """How many counters are in use at once."""


@dataclass(frozen=True)
class Row:
    """A fault, and what it is done to."""

    name: str
    fault: str
    """One sentence, for the table."""
    do: Callable[["Scene", float], Awaitable[None]]
    """Does it, over and over for about so many seconds; when it returns all that it broke is whole again."""
    pairs: tuple[str, ...]
    smoke: tuple[str, ...] = ()
    """Those of them that `make check` takes; `make reliability` takes all."""
    long: float = 30.0
    """Seconds for the table."""
    short: float = 4.0
    """Seconds for a test."""
    ingests: int = 1
    flushers: int = 2
    ingest: tuple[str, ...] = ("ingest", "--port", "0")
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of all processes."""
    ingest_settings: Mapping[str, str] = field(default_factory=dict)
    clients: Clients = Clients()
    refusals: frozenset[int] = frozenset({503})
    """What a client may be told instead of 202, and instead of a reading."""
    wires: bool = False
    """Emulators are reached through the proxies `Scene.ingest_wire`, `broker_wire` and `store_wire`."""
    redis: bool = False
    hurt: str = ""
    """"broker" or "store": the emulator that nobody else may use at the same time, `Scene.hurt`."""
    place: Callable[[Path], "Pair"] | None = None
    """Makes another pair than the usual one, in the folder of the scene."""
    within: Within | None = None
    """What every process of ours is started by, as `unshare` or `strace`; called when the scene is set."""
    recovery: float = 90.0
    """Seconds after the fault until all is accepted and applied again, at most."""


@dataclass
class Result:
    """What came of a row on one pair."""

    row: Row
    pair: str
    seconds: float = 0.0
    load: str = ""
    accepted: int = 0
    counted: int = 0
    lost: int = 0
    doubled: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    """Attempts of clients that were not answered 2xx, by what they were told."""
    reads: int = 0
    exact_reads: int = 0
    """Readings that said `exact`; each of them was."""
    recovered: float = 0.0
    peak: int = 0
    """Bytes: the largest resident set of a process of ours."""
    wrong: list[str] = field(default_factory=list)
    """What must not be. Empty, or the row has failed."""

"""Counters of other applications: the published variants of their data, and marks that record what was imported.
Pure.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

MOST_FOREIGN_SHARDS: Final = 10_000
"""Shards of one counter that are looked for. More would be a mistake."""


class By(Enum):
    """How the application's own code finds the shards of one counter."""

    CONFIG = auto()
    """Shards are found by keys that follow from the number in the counter's config."""
    LABEL = auto()
    """Shards are found by a property that holds the counter's name."""
    PARENT = auto()
    """Shards are found by the parent: all entities below the counter's key."""
    KIND = auto()
    """Shards are found by their kind, which is named after the counter."""
    ALL = auto()
    """All entities of the kind: there is only one counter."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One published variant."""

    name: str
    what: str
    by: By
    shard: str = ""
    """Kind of the shards; with `By.KIND` the beginning of the kind. Empty: the user must name it."""
    config: str = ""
    label: str = ""
    count: str = "count"
    number: str = ""
    """The property of the config that holds the number of shards."""
    shards: int = 0
    """The number of shards if the config does not hold it."""
    renamed: bool = False
    """Whether the user may name another kind for the shards."""

    def kinds(self, kind: str = "") -> tuple[str, ...]:
        """All kinds that its code reads and writes."""
        return tuple(one for one in (self.config, kind or self.shard) if one)


_CONFIG: Final = "GeneralCounterShardConfig"
_SHARD: Final = "GeneralCounterShard"

VARIANTS: Final = {
    one.name: one
    for one in (
        Variant("ndb", "Google's, Python ndb", By.CONFIG, _SHARD, _CONFIG, number="num_shards", shards=20),
        Variant("ndb-2013", "ndb of January 2013: shards are children of their counter", By.PARENT, _SHARD, _CONFIG),
        Variant("db", "Google's of 2008, Python db", By.LABEL, _SHARD, _CONFIG, "name"),
        Variant("go", "Google's, Go", By.LABEL, _SHARD, _CONFIG, "Name", "Count"),
        Variant("java", "Google's, Java, where each counter has its own kind", By.KIND, "CounterShard_", "Counter"),
        Variant("php", "php-gds; name its kind with --kind", By.LABEL, label="target", renamed=True),
        Variant("acc", "Acc of 2008", By.LABEL, "AccVals", label="cluster", renamed=True),
        Variant(
            "simple", "one counter without a name; name it with --name", By.ALL, "SimpleCounterShard", renamed=True
        ),
    )
}


EXPORT: Final = "export"
REDIS: Final = "redis"
FIRESTORE: Final = "firestore-counter"
OTHERS: Final = {
    EXPORT: "a file that countersink map --export wrote",
    REDIS: "whole numbers in keys of Redis, and in fields of hashes",
    FIRESTORE: "Firebase's extension; name what counts with --field",
}
"""What else can be imported: it is not in Datastore."""


# Counters of other applications: how to read them, and marks that record how much was imported.


class Foreign(NamedTuple):
    """A counter of another application."""

    name: str
    total: int = 0
    """The value that the application's own code would return."""
    flaw: str = ""
    """Why the total is unknown; empty if it is known."""


class Mark(NamedTuple):
    """Records how much of a counter in a source has been added here: the sum of all imports."""

    source: str
    counter: str
    seen: int
    """The expected old value; 0 before the first import."""
    total: int
    """The new value: a different number. It may be beyond int64, as totals may."""

    @staticmethod
    def kept(total: int) -> int | bytes:
        """As stores keep it, whose numbers have 64 bits: otherwise as its digits. `int` reads both."""
        return total if -(2**63) <= total < 2**63 else b"%d" % total


class Source(Protocol):
    """Another application's data. It may keep counting; nothing is written there."""

    name: str
    """Identifies the data for ever; no other data has the same name."""

    def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        """All counters whose names start with the prefix, each once. A string among them describes something that the
        application's own code does not count.

        The total of a counter that changes meanwhile is one that it may have had. If it only grows, the total is no
        less than before the call.
        """
        ...

    async def counter(self, name: str) -> Foreign | None:
        """One counter as it is now; None if it does not exist."""
        ...

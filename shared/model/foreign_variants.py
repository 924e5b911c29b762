"""The published variants of the sharded counter's data: which entities are a counter's. Pure."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

MOST_SHARDS: Final = 10_000
"""Of one counter, as far as anybody had so many on purpose."""


class By(Enum):
    """What tells the shards of one counter from those of others, and so which of them its own code adds up."""

    CONFIG = auto()
    """Those whose keys the number in the counter's config makes."""
    LABEL = auto()
    """All that have the counter's name as a property."""
    PARENT = auto()
    """All below the counter's key."""
    KIND = auto()
    """All of the kind that is called after the counter."""
    ALL = auto()
    """All of the kind: there is one counter."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One of them."""

    name: str
    what: str
    by: By
    shard: str = ""
    """Kind of the shards; of `By.KIND` how it begins. Empty: it has to be said."""
    config: str = ""
    label: str = ""
    count: str = "count"
    number: str = ""
    """Property of the config: how many shards there are."""
    shards: int = 0
    """How many there are where the config does not say so."""
    renamed: bool = False
    """Whether the kind of the shards may be another one."""

    def kinds(self, kind: str = "") -> tuple[str, ...]:
        """All that its code reads and writes."""
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

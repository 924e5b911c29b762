"""What a flush works with."""

from collections.abc import Callable
from dataclasses import dataclass

from flusher.growth import Growth
from flusher.lives import Lives
from flusher.shardbook import ShardBook
from shared.backoff import Backoff
from shared.clock import Clock
from shared.ports import Overlay, Store, Subscription


@dataclass(frozen=True, slots=True)
class Tools:
    """Of one flusher."""

    store: Store
    subscription: Subscription
    overlay: Overlay
    book: ShardBook
    clock: Clock
    lives: Lives
    backoff: Callable[[], Backoff]
    together: bool = False
    """Broker and store are one file, which knows by itself what is settled: nothing is too old there."""
    growth: Growth | None = None
    """Where more shards take more writes."""

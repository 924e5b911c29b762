"""What a flush works with."""

from collections.abc import Callable
from dataclasses import dataclass

from flusher.flush.receipt_lives import Lives
from flusher.shards.growth import Growth
from flusher.shards.shard_choice import ShardBook
from shared.ports.broker import Subscription
from shared.ports.overlay import Overlay
from shared.ports.store import Store
from shared.runtime.backoff import Backoff
from shared.runtime.clock import Clock


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

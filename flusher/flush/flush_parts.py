"""The parts that a flush uses."""

from collections.abc import Callable
from dataclasses import dataclass

from flusher.flush.promise_keeper import PromiseKeeper
from flusher.shards import Growth, ShardBook
from shared.model.buckets import Rules
from shared.ports.broker import Subscription
from shared.ports.overlay import Overlay
from shared.ports.store import Store
from shared.runtime.backoff import Backoff
from shared.runtime.clock import Clock
from shared.runtime.traces import Traces


@dataclass(frozen=True, slots=True)
class FlushParts:
    """The parts of one flusher."""

    store: Store
    subscription: Subscription
    overlay: Overlay
    book: ShardBook
    clock: Clock
    promise_keeper: PromiseKeeper
    backoff: Callable[[], Backoff]
    together: bool = False
    """Whether broker and store are one file. The file shows which messages are settled, so no message is too old."""
    growth: Growth | None = None
    """None where more shards do not take more writes."""
    rules: Rules = ()
    """Which counts by time are kept."""
    traces: Traces | None = None

"""Every metric of ours, in one file. What means lost or stuck data says so."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from shared.model.errors import CountersinkError
from shared.model.words import Balance

REGISTRY = CollectorRegistry()

ACCEPTED = Counter(
    "countersink_accepted_increments", "Increments answered 2xx after they were durable.", registry=REGISTRY
)
FOREIGN = Counter(
    "countersink_foreign_increments",
    "Increments in messages of other publishers, counted when they are settled: accepted, too.",
    registry=REGISTRY,
)
DOUBTFUL = Counter(
    "countersink_doubtful_increments",
    "Increments whose publish failed in an unknown way: not accepted, but they may be applied.",
    registry=REGISTRY,
)
REJECTED = Counter("countersink_rejected_increments", "Increments refused as invalid (4xx).", registry=REGISTRY)
UNDURABLE = Counter(
    "countersink_undurable_increments",
    "Increments taken with ack=none: answered before they were durable.",
    registry=REGISTRY,
)
OVERLOADED = Counter(
    "countersink_overloaded_requests", "Requests answered 503 or 507: nothing was promised.", registry=REGISTRY
)
CLOSED = Counter(
    "countersink_closed_connections",
    "Connections closed on clients: slow to send a request, leaving answers unread, or one too many.",
    ["why"],
    registry=REGISTRY,
)
LIMITED = Counter(
    "countersink_limited_requests",
    "Requests answered 429, of a client or a counter beyond its share: nothing was taken.",
    registry=REGISTRY,
)
PUBLISHED = Counter("countersink_published_envelopes", "Envelopes handed to the broker.", registry=REGISTRY)
PUBLISH_SECONDS = Histogram(
    "countersink_publish_seconds",
    "Time until a publish was durable.",
    registry=REGISTRY,
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
SPOOLED = Counter(
    "countersink_spooled_envelopes", "Envelopes taken by the spool while the broker was away.", registry=REGISTRY
)
FORWARDED = Counter(
    "countersink_forwarded_envelopes", "Envelopes that went from the spool to the broker.", registry=REGISTRY
)
SPOOL_REFUSED = Counter(
    "countersink_spool_refusals",
    "Times that the broker refused an envelope of the spool alone: it is kept, and tried again. Alert if it rises.",
    registry=REGISTRY,
)
SPOOL_BURIED = Gauge(
    "countersink_spool_buried_envelopes",
    "Envelopes in the spool that are too large to be sent, found at the start or since: NOT counted until they are"
    " replayed. Alert on any.",
    registry=REGISTRY,
)
SPOOLING = Gauge(
    "countersink_spooling", "1 while the broker is away and the spool takes what comes.", registry=REGISTRY
)
UNKEPT = Gauge(
    "countersink_subscription_missing",
    "1 while nobody would keep what is published, since the subscription is missing, detached or of another topic: then"
    " nothing is published. Alert if it is 1.",
    ["of"],
    registry=REGISTRY,
)
for _of in ("counts", "dead letters"):
    UNKEPT.labels(_of)
WAITING = Gauge("countersink_waiting_increments", "Increments not yet handed to the broker.", registry=REGISTRY)

PULLED = Counter("countersink_pulled_messages", "Messages leased by this flusher.", registry=REGISTRY)
REDELIVERED = Counter(
    "countersink_redelivered_messages", "Messages that came a second time or later.", registry=REGISTRY
)
APPLIED = Counter("countersink_applied_increments", "Increments committed to the store.", registry=REGISTRY)
DEDUPLICATED = Counter(
    "countersink_deduplicated_increments",
    "Increments that came as second uses of a client's id, of an increment or of a batch: accepted, and rightly not"
    " counted again.",
    registry=REGISTRY,
)
ALREADY_APPLIED = Counter(
    "countersink_already_applied_envelopes",
    "Redelivered envelopes that a receipt proved to be applied.",
    registry=REGISTRY,
)
DEAD = Counter(
    "countersink_dead_lettered_messages",
    "Messages put among the dead letters: NOT counted until they are replayed. Alert on any.",
    ["why"],
    registry=REGISTRY,
)
for _why in ("unreadable", "refused"):  # there from the start: from nothing to 1 is no increase to Prometheus
    DEAD.labels(_why)
NEWER = Counter(
    "countersink_newer_messages",
    "Messages and tasks of another version of Countersink that came here and were left to processes of that version:"
    " NOT counted until one of them takes them.",
    registry=REGISTRY,
)
DEAD_INCREMENTS = Counter(
    "countersink_dead_lettered_increments",
    "Increments in dead letters, as far as anybody knows them: NOT counted until they are replayed.",
    registry=REGISTRY,
)
FLUSHES = Counter("countersink_flushes", "Commits to the store.", registry=REGISTRY)
FLUSH_RETRIES = Counter("countersink_flush_retries", "Commits tried again.", ["why"], registry=REGISTRY)
FLUSH_SECONDS = Histogram(
    "countersink_flush_seconds",
    "Time of a commit.",
    registry=REGISTRY,
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
RAISES = Counter(
    "countersink_shard_raises",
    "Counters that got more shards because they are written so often.",
    ["why"],
    registry=REGISTRY,
)
COMPACTIONS = Counter(
    "countersink_compactions", "Counters brought down to fewer shards by this process.", ["why"], registry=REGISTRY
)
for _why in ("rate", "contention"):
    RAISES.labels(_why)
for _why in ("asked", "cold", "job"):
    COMPACTIONS.labels(_why)
MOST_SHARDS = Gauge(
    "countersink_most_shards",
    "Shards of the counter that has most, of those that this flusher writes to; 0 where it watches none.",
    registry=REGISTRY,
)
HELD = Gauge("countersink_held_messages", "Messages this flusher holds and has not acknowledged.", registry=REGISTRY)

OLDEST = Gauge(
    "countersink_oldest_held_seconds",
    "Age of the oldest message that this flusher holds; 0 when it finds nothing.",
    registry=REGISTRY,
)

CLOCK_AHEAD = Gauge(
    "countersink_clock_ahead_seconds",
    "How far this machine's wall clock is ahead of the store's; negative when it is behind. Set it right beyond 3600.",
    registry=REGISTRY,
)

DATASTORE_OPERATIONS = Counter(
    "countersink_datastore_operations",
    "Entities read (also those that are not there), written and deleted in Datastore: what it charges for.",
    ["operation"],
    registry=REGISTRY,
)

JOB_TASKS = Counter(
    "countersink_job_tasks", "Pages of counters that this process has visited for jobs.", registry=REGISTRY
)
JOB_COUNTERS = Counter(
    "countersink_job_counters",
    "Counters that this process has visited for jobs; some of them twice, if a task came again.",
    ["kind"],
    registry=REGISTRY,
)
SETS = Counter(
    "countersink_sets", "Counters set, reset or deleted, as far as this process was told.", ["how"], registry=REGISTRY
)
READS = Counter("countersink_reads", "Counters read.", ["how"], registry=REGISTRY)


class _Watched(Collector):
    """Gauges that are read when they are asked for; none where there is nothing to read."""

    def __init__(self) -> None:
        self.read: Callable[[], Balance] | None = None

    def collect(self) -> Iterator[Metric]:
        if self.read is None:
            return
        with contextlib.suppress(CountersinkError):  # the rest is shown all the same
            balance = self.read()
            yield GaugeMetricFamily(
                "countersink_pending_increments",
                "Increments in the file that are accepted and not settled; those of all processes on it.",
                balance.pending,
            )
            yield GaugeMetricFamily(
                "countersink_drift_increments",
                "Accepted - applied - deduplicated - dead-lettered - pending, over the life of the file. Less than 0"
                " between a commit and its acks, else 0. ALERT if it stays so: something is lost, or counted twice.",
                balance.drift,
            )


BALANCE: Final = _Watched()
REGISTRY.register(BALANCE)

"""Every metric of ours, in one file. What means lost or stuck data says so."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

ACCEPTED = Counter(
    "countersink_accepted_increments", "Increments answered 2xx after they were durable.", registry=REGISTRY
)
REJECTED = Counter("countersink_rejected_increments", "Increments refused as invalid (4xx).", registry=REGISTRY)
UNDURABLE = Counter(
    "countersink_undurable_increments",
    "Increments taken with ack=none: answered before they were durable.",
    registry=REGISTRY,
)
OVERLOADED = Counter(
    "countersink_overloaded_requests", "Requests answered 503 or 507: nothing was taken.", registry=REGISTRY
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
SPOOLING = Gauge(
    "countersink_spooling", "1 while the broker is away and the spool takes what comes.", registry=REGISTRY
)
WAITING = Gauge("countersink_waiting_increments", "Increments not yet handed to the broker.", registry=REGISTRY)

PULLED = Counter("countersink_pulled_messages", "Messages leased by this flusher.", registry=REGISTRY)
REDELIVERED = Counter(
    "countersink_redelivered_messages", "Messages that came a second time or later.", registry=REGISTRY
)
APPLIED = Counter("countersink_applied_increments", "Increments committed to the store.", registry=REGISTRY)
DEDUPLICATED = Counter(
    "countersink_deduplicated_increments",
    "Second uses of a client's id, of an increment or of a batch: accepted, and rightly not counted again.",
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
FLUSHES = Counter("countersink_flushes", "Commits to the store.", registry=REGISTRY)
FLUSH_RETRIES = Counter("countersink_flush_retries", "Commits tried again.", ["why"], registry=REGISTRY)
FLUSH_SECONDS = Histogram(
    "countersink_flush_seconds",
    "Time of a commit.",
    registry=REGISTRY,
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
HELD = Gauge("countersink_held_messages", "Messages this flusher holds and has not acknowledged.", registry=REGISTRY)

DATASTORE_OPERATIONS = Counter(
    "countersink_datastore_operations",
    "Entities read (also those that are not there), written and deleted in Datastore: what it charges for.",
    ["operation"],
    registry=REGISTRY,
)

READS = Counter("countersink_reads", "Counters read.", ["how"], registry=REGISTRY)

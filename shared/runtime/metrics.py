"""Every metric, in one file, and what the process takes. The help of one that means lost or stuck data says so."""

import os
import resource
import time
from functools import partial
from math import nan
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from shared.runtime.instruments import Counter, Gauge, Histogram, MetricsBoard

REGISTRY: Final = CollectorRegistry()
BOARD: Final = MetricsBoard()
REGISTRY.register(BOARD)
_counter = partial(Counter, BOARD)
_gauge = partial(Gauge, BOARD)
_histogram = partial(Histogram, BOARD)

ACCEPTED = _counter("countersink_accepted_increments", "Increments that were accepted: durable, and answered 2xx.")
FOREIGN = _counter(
    "countersink_foreign_increments",
    "Accepted increments in messages of other publishers. They are added here when they are applied, deduplicated or"
    " dead-lettered.",
)
DOUBTFUL = _counter(
    "countersink_doubtful_increments",
    "Increments whose publishing failed with an unknown result: not accepted, but possibly applied.",
)
REJECTED = _counter("countersink_rejected_increments", "Invalid increments, answered 4xx.")
UNDURABLE = _counter("countersink_undurable_increments", "Increments answered before they were durable (ack=none).")
OVERLOADED = _counter("countersink_overloaded_requests", "Requests answered 503 or 507. Nothing was accepted.")
CLOSED = _counter(
    "countersink_closed_connections",
    "Connections that the service closed: slow to send a request, answers left unread, too much held in memory, or"
    " too many connections.",
    ["why"],
)
LIMITED = _counter(
    "countersink_limited_requests",
    "Requests answered 429 because a client or a counter holds too much, or a new name is beyond a limit. Nothing was"
    " accepted.",
)
PUBLISHED = _counter("countersink_published_envelopes", "Envelopes handed to the broker.")
PUBLISH_SECONDS = _histogram("countersink_publish_seconds", "Duration of a publish, until it was durable.")
SPOOLED = _counter("countersink_spooled_envelopes", "Envelopes that the spool took while the broker was unavailable.")
FORWARDED = _counter("countersink_forwarded_envelopes", "Envelopes sent from the spool to the broker.")
SPOOL_REFUSED = _counter(
    "countersink_spool_refusals",
    "How often the broker rejected a single envelope of the spool. It is kept and tried again. Alert if it rises.",
)
SPOOL_BURIED = _gauge(
    "countersink_spool_buried_envelopes",
    "Envelopes in the spool that are too large or too old to be sent. NOT counted until they are replayed. Alert on"
    " any.",
)
SPOOLING = _gauge("countersink_spooling", "1 while the broker is unavailable and the spool takes increments.")
SPOOL_USED = _gauge(
    "countersink_spool_used_ratio",
    "How much of COUNTERSINK_SPOOL_BYTES the spool holds, from 0 to 1. At 1, requests get 503. Alert if it is above"
    " 0.5.",
)
UNKEPT = _gauge(
    "countersink_subscription_missing",
    "1 while the subscription is missing, is detached, or belongs to another topic. Nothing is published"
    " meanwhile. Alert if it is 1.",
    ["of"],
)
for _of in ("counts", "dead letters"):
    UNKEPT.labels(_of)
WAITING = _gauge("countersink_waiting_increments", "Increments that are not yet handed to the broker.")

FEED_TOLD = _counter(
    "countersink_feed_events", "Events that the receiver of the feed took, by their type (of the CloudEvent).", ["type"]
)
FEED_FAILED = _counter(
    "countersink_feed_failures",
    "How often the receiver of the feed did not take an event. It is kept and sent again.",
    ["type"],
)
FEED_WAITING = _gauge(
    "countersink_feed_waiting_events",
    "Counters, and commits that reached thresholds, that are due to be reported. Those beyond 10,000 are not counted.",
)
FEED_OLDEST = _gauge(
    "countersink_feed_oldest_seconds",
    "Seconds for which the oldest waiting event of the feed has been due. Alert if it is above 300: the receiver does"
    " not take it.",
)

STATSD_LINES = _counter("countersink_statsd_lines", "Lines that StatsD senders sent, counted or not.")
STATSD_UNCOUNTED = _counter(
    "countersink_statsd_uncounted_lines",
    "StatsD lines that were not counted. They are LOST. Alert if `why` is room, key or stop.",
    ["why"],
)
WHYS: Final = ("malformed", "type", "name", "large", "prefix", "new-name", "room", "key", "stop")
for _why in WHYS:
    STATSD_UNCOUNTED.labels(_why)
STATSD_DROPPED = _counter(
    "countersink_statsd_dropped_packets",
    "UDP packets with StatsD lines that Linux dropped, because they came faster than this process read them. They are"
    " LOST. Alert if it rises.",
)
STATSD_WAITING = _gauge("countersink_statsd_waiting_lines", "StatsD lines that were read and are not published yet.")

PULLED = _counter("countersink_pulled_messages", "Messages that this flusher pulled.")
REDELIVERED = _counter("countersink_redelivered_messages", "Messages that were delivered again.")
APPLIED = _counter("countersink_applied_increments", "Increments committed to the store.")
DEDUPLICATED = _counter(
    "countersink_deduplicated_increments", "Repeated uses of ids and idempotency keys: accepted, and not counted again."
)
ALREADY_APPLIED = _counter(
    "countersink_already_applied_envelopes", "Redelivered envelopes that were recognized by their receipts."
)
DEAD = _counter(
    "countersink_dead_lettered_messages",
    "Messages moved to the dead letters. NOT counted until they are replayed. Alert on any.",
    ["why"],
)
for _why in ("unreadable", "refused"):  # from the start: a counter that appears as 1 is no increase to Prometheus
    DEAD.labels(_why)
NEWER = _counter(
    "countersink_newer_messages",
    "Messages and tasks of another version of Countersink, left to processes of that version. NOT counted until"
    " such a process takes them.",
)
DEAD_INCREMENTS = _counter(
    "countersink_dead_lettered_increments",
    "Increments in dead letters, if they can be read. NOT counted until they are replayed. A replay does not lower this"
    " number.",
)
FLUSHES = _counter("countersink_flushes", "Commits to the store.")
FLUSH_RETRIES = _counter("countersink_flush_retries", "Commits that were tried again.", ["why"])
BUSY = _counter(
    "countersink_flusher_busy_seconds", "How long this flusher was busy: committing, trying again, and acknowledging."
)
PATIENCE = _gauge(
    "countersink_flush_patience_seconds",
    "How long this flusher collects increments before it writes them. It grows while nobody reads these"
    " counters or waits for an increment.",
)
FLUSH_SECONDS = _histogram("countersink_flush_seconds", "Duration of a commit to the store.")
RAISES = _counter(
    "countersink_shard_raises",
    "Counters that got more shards because they are written often. `why` is `rate` or `contention`.",
    ["why"],
)
COMPACTIONS = _counter(
    "countersink_compactions",
    "Counters that this process reduced to fewer shards. `why` is `asked`, `cold` or `job`.",
    ["why"],
)
for _why in ("rate", "contention"):
    RAISES.labels(_why)
for _why in ("asked", "cold", "job"):
    COMPACTIONS.labels(_why)
SHARDS_OF_LARGEST = _gauge(
    "countersink_most_shards",
    "Largest number of shards of a counter that this flusher writes to; 0 if it watches none.",
)
HELD = _gauge("countersink_held_messages", "Messages that this flusher holds and has not acknowledged.")

OLDEST = _gauge(
    "countersink_oldest_held_seconds", "Age of the oldest message that this flusher holds; 0 if there is none."
)

CLOCK_AHEAD = _gauge(
    "countersink_clock_ahead_seconds",
    "How far this machine's clock is ahead of the store's; negative if it is behind. Correct the clock if this is"
    " above 3600 or below -3600.",
)

DATASTORE_OPERATIONS = _counter(
    "countersink_datastore_operations",
    "Entities read (including missing ones), written and deleted in Datastore, which is what Google charges for.",
    ["operation"],
)

START = _gauge(
    "countersink_start_time_seconds",
    "When this process started, in seconds since 1970. The labels say what it uses as broker, store and overlay.",
    ["broker", "store", "overlay"],
)
MEMBERS = _gauge(
    "countersink_fleet_members",
    "Processes that the store knows, with Pub/Sub. A process that was killed is among them for a while.",
    ["role"],
)

JOB_TASKS = _counter("countersink_job_tasks", "Pages of counters that this process visited for jobs.")
JOB_COUNTERS = _counter(
    "countersink_job_counters",
    "Counters that this process visited for jobs. A counter is visited again if its task is delivered again.",
    ["kind"],
)
EXPIRE_DUE = _gauge(
    "countersink_expire_due",
    "1 until this day's job of a rule in COUNTERSINK_EXPIRE is done. Alert if it stays 1 for 6 hours.",
    ["prefix"],
)
SETS = _counter("countersink_sets", "Counters that this process changed. `how` is `set`, `reset` or `delete`.", ["how"])
READS = _counter("countersink_reads", "Counters read. `how` is `cached` or `looked up`.", ["how"])
INEXACT = _counter(
    "countersink_inexact_reads", "Counters read that were not exact. With Redis, ALERT if it rises for long."
)

REQUEST_SECONDS = _histogram(
    "countersink_request_seconds",
    "Time from the head of a request to its answer, in seconds. Streams (watch) are not among them.",
    ["route", "status"],
)
IN_FLIGHT = _gauge("countersink_requests_in_flight", "Requests that are being answered now, this one among them.")
OPEN_STREAMS = _gauge("countersink_open_streams", "Streams (watch) that are open now.")

CPU = _counter("process_cpu_seconds", "CPU time that the process took, in seconds.")
RESIDENT = _gauge("process_resident_memory_bytes", "Memory of the process, in bytes.")
OPEN_FILES = _gauge("process_open_fds", "Files, sockets and pipes that the process has open.")
MAX_FILES = _gauge("process_max_fds", "Maximum number of files, sockets and pipes that the process may have open.")
PROCESS_START = _gauge("process_start_time_seconds", "When the process was created, in seconds since 1970.")

DEAD_NOW = _gauge(
    "countersink_dead_increments",
    "Increments in the dead letters of the SQLite file now. NOT counted until they are replayed. Alert on any.",
)
DISK_SPARE = _gauge(
    "countersink_disk_spare_bytes",
    "Free bytes on the disk of the SQLite file or the spool, beyond the reserve. At 0, increments are refused. Alert if"
    " it is below 1 GB.",
)
PENDING = _gauge(
    "countersink_pending_increments",
    "Accepted increments that are not applied, deduplicated or dead-lettered yet. Of a SQLite file: those of all"
    " processes. With Pub/Sub: those that this ingest accepted, and that it does not know to be applied.",
)
OLDEST_PENDING = _gauge(
    "countersink_oldest_pending_seconds",
    "Age of the oldest pending increment; 0 if there is none. It grows while no flusher runs. Alert if it is above"
    " 600.",
)
DRIFT = _gauge(
    "countersink_drift_increments",
    "Accepted - applied - deduplicated - dead-lettered - pending, since the file was created. It is 0, or below 0"
    " between a commit and its acknowledgement. ALERT if it stays different from 0: increments were lost or counted"
    " twice.",
)
OF_DATA: Final = (PENDING, OLDEST_PENDING, DRIFT, DEAD_NOW, DISK_SPARE, SPOOL_USED, FEED_WAITING, FEED_OLDEST)
"""Gauges that a process reads from its data, and does not show if it can't."""
for _unknown in (*OF_DATA, RESIDENT, OPEN_FILES, MAX_FILES, PROCESS_START):
    _unknown.clear()


# What this process takes: CPU time, memory and open files. The metrics have the names that all programs use.


_PAGE: Final = resource.getpagesize()


def watch_process() -> None:
    """Show it from now on. Values that only Linux tells are not shown elsewhere."""
    CPU.set_function(time.process_time)
    RESIDENT.set_function(_resident)
    OPEN_FILES.set_function(_open_files)
    MAX_FILES.set_function(lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    PROCESS_START.set(started())


def _resident() -> float:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return nan


def _open_files() -> float:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (it is done at each scrape, and this is faster)
    except OSError:
        return nan


def counted_since() -> float:
    """When counting began, in seconds since 1970: workers continue what earlier ones of their parent have counted."""
    return started() if BOARD.worker is None else started(os.getppid())


def started(process: int | str = "self") -> float:
    try:
        ticks = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return nan
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")

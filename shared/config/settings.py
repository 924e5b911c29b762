"""The settings: one frozen object, read once from the environment; each field knows its variable and its help."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from shared.model.errors import SettingsError
from shared.model.fleet import LONGEST_LOOK
from shared.model.promises import Promise, promised

PREFIX = "COUNTERSINK_"
MOST_SHARDS = 10_000
"""Of a counter, whatever the settings say."""


def _setting(default: Any, read: Callable[[str], Any], help_: str, shown: str = "") -> Any:
    return field(default=default, metadata={"read": read, "help": help_, "shown": shown or str(default)})


def _text(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    return value


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not least <= number <= most:
            raise ValueError(f"must be from {least} to {most}")
        return number

    return read


def _number(least: float, most: float) -> Callable[[str], float]:
    def read(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            raise ValueError("must be a number") from None
        if not (math.isfinite(number) and least <= number <= most):
            raise ValueError(f"must be from {least:g} to {most:g}")
        return number

    return read


def _choice(*choices: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        for choice in choices:
            if value.lower() == choice.lower():
                return choice
        raise ValueError(f"must be {' or '.join(choices)}")

    return read


_DEFAULT_FILE = "sqlite:///.countersink/countersink.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can be set. Every field is the variable COUNTERSINK_ + its name in capitals."""

    broker: str = _setting(
        _DEFAULT_FILE, _text, "where envelopes wait: sqlite:///FILE or pubsub://PROJECT/TOPIC?subscription=S"
    )
    store: str = _setting(
        "",
        _text,
        "where counters live: with a SQLite broker its file, else datastore://PROJECT[/DATABASE][?namespace=NS]",
        "the broker's file",
    )
    overlay: str = _setting(
        "memory://",
        _text,
        "what is accepted and not applied yet; beside Pub/Sub redis://HOST[:PORT][/N] for a whole fleet, so that reads"
        " are exact",
    )
    spool: str = _setting(
        "",
        _text,
        "file that takes envelopes while Pub/Sub is away, or off: ingest answers 503 meanwhile",
        ".countersink/spool-PROJECT-TOPIC.db",
    )
    spool_disk: str = _setting(
        "auto",
        _choice("auto", "durable", "ephemeral"),
        "whether the spool's disk outlives the container and the Pod: durable or ephemeral; auto looks, and takes for"
        " ephemeral what is in memory, a container's own layer, an emptyDir or a volume without a name; there the spool"
        " takes nothing",
    )
    spool_bytes: int = _setting(1_073_741_824, _whole(1_024, 2**50), "most bytes in the spool; beyond it 503")
    spool_age: float = _setting(
        86_400.0, _number(60.0, 2_678_400.0), "longest time envelopes may wait in the spool, seconds; beyond it 503"
    )
    existing: str = _setting(
        "no",
        _choice("no", "yes"),
        "whether SQLite files must be there: yes never makes one at a start, countersink provision does",
    )
    linger_ms: int = _setting(
        20,
        _whole(0, 10_000),
        "longest wait for others to travel with, ms; on Pub/Sub, where streams come, five times that",
    )
    flush_interval: float = _setting(1.0, _number(0.0, 60.0), "longest age of a flusher's window, seconds")
    cache_ttl: float = _setting(1.0, _number(0.0, 60.0), "longest age of the cached part of a read, seconds")
    look: float = _setting(
        1.0,
        _number(0.0, LONGEST_LOOK),
        "seconds for which one look at the processes that publish serves exact reads; 0: each read looks",
    )
    shards: int = _setting(1, _whole(1, MOST_SHARDS), "shards of a new counter")
    max_shards: int = _setting(100, _whole(1, MOST_SHARDS), "most shards of a counter")
    shard_writes: float = _setting(
        1.0, _number(0.01, 10_000.0), "writes a second that a shard in Datastore may take before the counter gets more"
    )
    compact_after: float = _setting(
        0.0,
        _number(0.0, 36_500.0),
        "days without a write after which a counter in Datastore has its first number of shards again; 0: never",
    )
    retention: int = _setting(
        604_800,
        _whole(600, 2_678_400),
        "longest time the broker keeps a message, seconds; receipts live a day longer, or as long as a spool keeps it",
    )
    lease: float = _setting(60.0, _number(1.0, 600.0), "seconds a flusher may hold a message without a word")
    max_pending_bytes: int = _setting(
        33_554_432, _whole(1_024, 2**50), "unapplied bytes in a SQLite broker at which ingest answers 503"
    )
    disk_reserve: int = _setting(
        67_108_864,
        _whole(0, 2**40),
        "bytes kept free on the disk of a SQLite broker or a spool, a tenth of it at most, and what is pending needs;"
        " beyond it 507",
    )
    max_waiting: int = _setting(
        200_000,
        _whole(1, 10_000_000),
        "increments waiting or on their way in one ingest process at which it answers 503, and 429 to who holds too"
        " many of them; 256 bytes of a body count as one",
    )
    max_body_bytes: int = _setting(8_388_608, _whole(1_024, 2**30), "largest request body, bytes")
    body_timeout: float = _setting(10.0, _number(0.1, 600.0), "seconds a client may take to send a body")
    head_timeout: float = _setting(
        10.0, _number(0.1, 600.0), "seconds a client may take to send the first line and the headers of a request"
    )
    max_connections: int = _setting(
        10_000,
        _whole(1, 1_000_000),
        "most open connections of one ingest process, or what its limit of open files allows",
    )
    max_window_bytes: int = _setting(16_777_216, _whole(1_024, 2**30), "most bytes a flusher holds at once")
    drain_timeout: float = _setting(
        10.0, _number(0.0, 600.0), "seconds after SIGTERM for ingest to finish, and again for the flusher"
    )
    job_tasks: int = _setting(
        4, _whole(1, 1_000), "pages of counters that one flusher visits at once for jobs, as of countersink map"
    )
    ndb_writers: str = _setting(
        "no",
        _choice("no", "yes"),
        "whether an ndb application writes to the same counters: then shards are not compacted, nor removed",
    )
    kind_config: str = _setting("GeneralCounterShardConfig", _text, "kind of the configs in Datastore")
    kind_shard: str = _setting("GeneralCounterShard", _text, "kind of the shards in Datastore")
    kind_receipt: str = _setting("CountersinkReceipt", _text, "kind of the receipts in Datastore")
    kind_guard: str = _setting("CountersinkGuard", _text, "kind of what Datastore keeps of counters that were set")
    kind_mark: str = _setting("CountersinkMark", _text, "kind of what Datastore keeps of imports")
    kind_job: str = _setting("CountersinkJob", _text, "kind of what Datastore keeps of jobs")
    kind_task: str = _setting("CountersinkTask", _text, "kind of what Datastore keeps of their tasks")
    kind_fleet: str = _setting("CountersinkFleet", _text, "kind of what Datastore keeps of the processes that publish")
    log_level: str = _setting(
        "WARNING",
        _choice("DEBUG", "INFO", "WARNING", "ERROR"),
        "least grave of what is logged: DEBUG, INFO, WARNING or ERROR",
    )

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Settings":
        """From the environment; `SettingsError` names the variable that is wrong, or that nobody knows."""
        known = {variable(item.name): item for item in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in environment.items():
            if not name.startswith(PREFIX) or name in _OTHERS:
                continue
            if name not in known:
                raise SettingsError(f"{name} is not a setting of Countersink; see countersink --help")
            item = known[name]
            try:
                values[item.name] = item.metadata["read"](text.strip())
            except ValueError as error:
                raise SettingsError(f"{name}={text!r}: {error}") from None
        settings = cls(**values)
        if settings.compact_after and settings.ndb_writers == "yes":
            raise SettingsError(
                "COUNTERSINK_COMPACT_AFTER: beside an ndb application (COUNTERSINK_NDB_WRITERS=yes) nothing is"
                " compacted; leave it out"
            )
        return settings


_OTHERS = frozenset({"COUNTERSINK_URL", "COUNTERSINK_REQUIRE_ALL", "COUNTERSINK_SEEDS"})
"""Variables of the client and of the tests."""


def flaw_of_shards(number: object, most: int) -> str | None:
    """Why a counter can't be told to have so many; None if it can. `most`: `Settings.max_shards`."""
    if type(number) is not int or not 1 <= number <= most:
        return f"must be a whole number from 1 to {most} (COUNTERSINK_MAX_SHARDS)"
    return None


def variable(name: str) -> str:
    return PREFIX + name.upper()


def promise_of(settings: Settings) -> Promise:
    """What a flusher with these settings promises of envelopes."""
    return promised(settings.retention * 1000, int(settings.spool_age * 1000))


def table() -> list[tuple[str, str, str]]:
    """Variable, default and help of each setting, for --help and the README."""
    return [(variable(f.name), f.metadata["shown"], f.metadata["help"]) for f in fields(Settings)]

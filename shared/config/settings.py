"""The settings: one frozen object, read once from the environment; each field knows its variable and its help."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from shared.config import lists
from shared.config.lists import NameLimit, Network, template_text
from shared.config.urls import is_service_link
from shared.model.buckets import Millis, Rule
from shared.model.errors import SettingsError
from shared.model.feed import FeedRule, ThresholdRule
from shared.model.fleet import LONGEST_LOOK
from shared.model.jobs import ExpireRule
from shared.model.receipts import Promise, lifetime, promised

# Reads settings that are one text, number or choice. Pure.


def text(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    return value


def spool(value: str) -> str:
    if value.lower() == "off":
        return "off"
    if value.lower() in {"false", "no", "none", "0", "true", "yes", "on", "1"}:
        raise ValueError("must be a file, or off")
    return value


def http_url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError("must be a URL that begins with http:// or https://")
    return value


def bounded(of: Callable[[str], float], kind: str, form: str, least: float, most: float) -> Callable[[str], float]:
    def read(value: str) -> float:
        try:
            read_as = of(value)
        except ValueError:
            raise ValueError(f"must be {kind}") from None
        if not least <= read_as <= most:
            raise ValueError(f"must be from {least:{form}} to {most:{form}}")
        return read_as

    return read


whole = partial(bounded, int, "a whole number", ",d")
number = partial(bounded, float, "a number", ",.10g")


def choice(*choices: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        for one in choices:
            if value.lower() == one.lower():
                return one
        raise ValueError(f"must be {' or '.join(choices)}")

    return read


PREFIX = "COUNTERSINK_"
MOST_SHARDS = 10_000


def _setting(default: Any, read: Callable[[str], Any], help_: str, shown: str = "") -> Any:
    shown = shown or ("none" if default in {"", ()} else str(default))
    return field(default=default, metadata={"read": read, "help": help_, "shown": shown})


_DEFAULT_FILE = "sqlite:///.countersink/countersink.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings. Each field is read from the variable COUNTERSINK_ + its name in capitals."""

    broker: str = _setting(
        _DEFAULT_FILE,
        text,
        "where accepted increments wait until they are applied: sqlite:///FILE or "
        "pubsub://PROJECT/TOPIC?subscription=S",
    )
    store: str = _setting(
        "",
        text,
        "where counters are stored: with a SQLite broker, the same file; with Pub/Sub, "
        "datastore://PROJECT[/DATABASE][?namespace=NS]",
        "the broker's file",
    )
    overlay: str = _setting(
        "memory://",
        text,
        "with Pub/Sub, the Redis or Valkey server that makes reads exact: redis[s]://[:PASSWORD@]HOST[:PORT][/N]",
    )
    spool: str = _setting(
        "",
        spool,
        "file that takes increments while Pub/Sub is unavailable; off: requests get 503 instead",
        ".countersink/spool-PROJECT-TOPIC.db",
    )
    spool_disk: str = _setting(
        "auto",
        choice("auto", "durable", "ephemeral"),
        "whether the spool's disk outlives the container: durable, ephemeral, or auto to detect it; on an "
        "ephemeral disk, the spool is off",
    )
    spool_bytes: int = _setting(
        1_073_741_824, whole(1_024, 2**50), "maximum size of the spool, bytes; when it is full, requests get 503"
    )
    spool_age: float = _setting(
        86_400.0,
        number(60.0, 2_678_400.0),
        "longest time that increments may wait in the spool, seconds; after that, requests get 503",
    )
    existing: str = _setting(
        "no", choice("no", "yes"), "yes: only countersink provision creates a SQLite file, no start does"
    )
    linger_ms: int = _setting(
        20,
        whole(0, 10_000),
        "longest time that an increment waits for others, ms; five times as long on Pub/Sub under steady traffic",
    )
    flush_interval: float = _setting(
        1.0, number(0.0, 60.0), "longest time that a flusher collects increments before it writes them, seconds"
    )
    max_flush_interval: float = _setting(
        10.0,
        number(0.0, 60.0),
        "longest time that a flusher collects for Datastore while nobody reads or waits, seconds; unused if"
        " COUNTERSINK_FLUSH_INTERVAL is 0",
    )
    cache_ttl: float = _setting(1.0, number(0.0, 60.0), "longest age of the cached part of a total, seconds")
    look: float = _setting(
        1.0,
        number(0.0, LONGEST_LOOK),
        "longest time that reads rely on their last look at the list of processes in the store, seconds; "
        "0: always look",
    )
    shards: int = _setting(1, whole(1, MOST_SHARDS), "number of shards of a new counter")
    max_shards: int = _setting(
        100,
        whole(1, MOST_SHARDS),
        "largest number of shards that a counter grows to under load, or can be given; a total beyond 2^62 takes more",
    )
    shard_writes: float = _setting(
        1.0,
        number(0.01, 10_000.0),
        "writes per second that one shard in Datastore can take; a counter that needs more gets more shards",
    )
    compact_after: float = _setting(
        0.0,
        number(0.0, 36_500.0),
        "days without a write after which a counter in Datastore returns to its first number of shards; 0: never",
    )
    retention: int = _setting(
        604_800,
        whole(600, 2_678_400),
        "longest time that the broker keeps a message, seconds; duplicates are recognized for at least a day longer",
    )
    lease: float = _setting(
        60.0,
        number(1.0, 600.0),
        "seconds after which another flusher takes over the messages of a flusher that does not respond",
    )
    max_pending_bytes: int = _setting(
        33_554_432,
        whole(1_024, 2**50),
        "maximum size of the pending increments in a SQLite broker, bytes; each string counts as its length and 24 "
        "more; beyond it, requests get 503; in memory, they take up to 8 times as much",
    )
    disk_reserve: int = _setting(
        67_108_864,
        whole(0, 2**40),
        "bytes to keep free on the disk of a SQLite file, but at most a tenth of the disk; if less is free, "
        "or too little to apply the pending increments, requests get 507",
    )
    max_waiting: int = _setting(
        200_000,
        whole(1, 10_000_000),
        "maximum number of increments that one ingest process holds before they are safe on disk; each 256 "
        "bytes of a body count as one; beyond it, requests get 503, and a client that holds too many of them "
        "gets 429",
    )
    max_body_bytes: int = _setting(8_388_608, whole(1_024, 2**30), "largest request body, bytes")
    body_timeout: float = _setting(10.0, number(0.1, 600.0), "seconds that a client may take to send a body")
    head_timeout: float = _setting(
        10.0, number(0.1, 600.0), "seconds that a client may take to send the request line and the headers"
    )
    idle_timeout: float = _setting(
        620.0,
        number(0.1, 3600.0),
        "seconds after which a connection without a request is closed; set it longer than your proxy keeps such "
        "connections, or the proxy may send a request to one that is just being closed",
    )
    max_connections: int = _setting(
        10_000,
        whole(1, 1_000_000),
        "maximum number of open connections of one ingest process; fewer if its limit of open files is lower",
    )
    max_window_bytes: int = _setting(
        16_777_216, whole(1_024, 2**30), "maximum number of bytes that a flusher holds at once"
    )
    drain_timeout: float = _setting(
        10.0, number(0.0, 600.0), "seconds that ingest, and then the flusher, may take to finish after SIGTERM"
    )
    max_counters: tuple[NameLimit, ...] = _setting(
        (),
        lists.name_limits,
        "maximum number of counters under each prefix, such as page:=100000,=1000000, where =1000000 is for "
        "all names; beyond it, requests with new names get 429",
    )
    windows: tuple[Rule, ...] = _setting(
        (),
        lists.rules_of,
        "which counts by time are kept, and for how long, such as page:=hour/90d,day/2y;=day/1y; periods are "
        "minute, hour and day, and the longest prefix decides",
    )
    feed: tuple[FeedRule, ...] = _setting(
        (),
        lists.feed_rules,
        "counters whose changes are reported, and the shortest interval, such as page:=10s,=1m, where =1m is for all"
        " names; the longest prefix decides",
    )
    thresholds: tuple[ThresholdRule, ...] = _setting(
        (),
        lists.threshold_rules,
        "totals that are reported when counters reach them, such as page:=every 1000,quota:=at 100 1000; the longest"
        " prefix decides",
    )
    feed_to: str = _setting(
        "",
        text,
        "where events go: https://… (a web hook), file:///FILE (a line of JSON for each event) or pubsub://PROJECT/TOPIC",
    )
    feed_secret: str = _setting(
        "",
        text,
        "secret that signs what a web hook gets: whsec_ and 24 to 64 random bytes as base64; while you replace it, set"
        " both, separated by a space",
    )
    expire: tuple[ExpireRule, ...] = _setting(
        (),
        lists.expire_rules,
        "counters that are deleted each day because they were not changed for days (d) or years (y), such as "
        "page:=400d,quota:=90d; no prefix may begin with another one",
    )
    top: tuple[NameLimit, ...] = _setting(
        (),
        lists.tops,
        "on Datastore, prefixes whose largest counters may be requested, and how many, such as page:=100, where =100"
        " is for all names; a SQLite file needs no setting",
    )
    job_tasks: int = _setting(
        4, whole(1, 1_000), "pages of counters that one flusher processes at the same time for jobs"
    )
    max_exports: int = _setting(
        1_000,
        whole(1, 1_000_000),
        "maximum number of exports that are kept, at most a quarter for each owner of keys; beyond it, new "
        "ones get 429",
    )
    max_export_bytes: int = _setting(
        1_073_741_824,
        whole(1_024, 2**50),
        "maximum size of all exports that a SQLite file keeps, bytes, at most a quarter for each owner of keys; "
        "beyond it, new ones get 429, and running ones fail",
    )
    keys_file: str = _setting(
        "", text, "file with the keys that requests need, and what each may do; countersink keys changes it"
    )
    keys_interval: float = _setting(
        0.5, number(0.1, 3600.0), "seconds between two reads of that file; raise it where each read costs something"
    )
    audience: tuple[str, ...] = _setting(
        (),
        lists.audiences,
        "audiences of the ID tokens that service accounts of Google send, such as https://counts.example.com",
    )
    google_certificates: str = _setting(
        "https://www.googleapis.com/oauth2/v1/certs",
        http_url,
        "URL of the certificates that ID tokens are verified with; only tests change it",
    )
    trusted_proxies: tuple[Network, ...] = _setting(
        (),
        lists.networks,
        "networks of your proxies, such as 10.0.0.0/8,192.168.1.1/32; the client is then the last address in "
        "X-Forwarded-For that is not in one of these networks",
    )
    origins: tuple[str, ...] = _setting(
        (),
        lists.origins,
        "origins of web pages that may count from a browser, such as https://www.example.com,https://example.org",
    )
    hosts: tuple[str, ...] = _setting(
        (),
        lists.hosts,
        "without keys, names that a service accepts in the header Host, besides those of loopback, such as "
        "counts.example.com",
    )
    pixels: tuple[str, ...] = _setting(
        (),
        lists.prefixes,
        "prefixes of counters that may be counted by a picture in a page or a mail, such as mail:,ad:",
    )
    badges: tuple[str, ...] = _setting(
        (),
        lists.prefixes,
        "prefixes of counters whose totals everybody may see as a badge, without a key, such as stars:",
    )
    statsd_key: str = _setting("", text, "key under which StatsD lines count; required if the service has keys")
    statsd_name: str = _setting(
        "{name}", template_text, "name of the counter of a StatsD line, made of {name} and {tag.TAG}"
    )
    ndb_writers: str = _setting(
        "no", choice("no", "yes"), "yes: an ndb application writes to the same counters, so shards are never removed"
    )
    kind_config: str = _setting(
        "GeneralCounterShardConfig", text, "Datastore kind of counter configurations; never change it"
    )
    kind_shard: str = _setting("GeneralCounterShard", text, "Datastore kind of shards; never change it")
    log_level: str = _setting(
        "WARNING",
        choice("DEBUG", "INFO", "WARNING", "ERROR"),
        "lowest level that is logged: DEBUG, INFO, WARNING or ERROR",
    )
    log_format: str = _setting(
        "text", choice("text", "json"), "text: lines for people; json: lines for Cloud Logging and other programs"
    )
    log_requests: int = _setting(
        0, whole(0, 100_000), "maximum number of requests per second that one ingest process logs; 0: none"
    )

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Settings":
        """Read them from the environment. `SettingsError` names a variable that is wrong or unknown."""
        known = {variable(item.name): item for item in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in environment.items():
            if not name.startswith(PREFIX) or name in _OTHERS or is_service_link(name, text):
                continue
            if name not in known:
                from difflib import get_close_matches  # noqa: PLC0415 (only this error needs it)

                near = get_close_matches(
                    name.removeprefix(PREFIX).lower(), [item.name for item in fields(cls)], 1, 0.75
                )
                means = "".join(f"did you mean {variable(one)}?" for one in near)
                raise SettingsError(f"{name} is not a setting of Countersink; {means or 'see countersink --help'}")
            item = known[name]
            try:
                values[item.name] = item.metadata["read"](text.strip())
            except ValueError as error:
                raise SettingsError(f"{name}={text!r}: {error}") from None
        settings = cls(**values)
        if settings.compact_after and settings.ndb_writers == "yes":
            raise SettingsError(
                "COUNTERSINK_COMPACT_AFTER: nothing is compacted while an ndb application writes, too"
                " (COUNTERSINK_NDB_WRITERS=yes); set only one of them"
            )
        if settings.feed_to and not (settings.feed or settings.thresholds):
            raise SettingsError(
                "COUNTERSINK_FEED_TO is set, and nothing is reported to it: set COUNTERSINK_FEED or"
                " COUNTERSINK_THRESHOLDS, too"
            )
        if not settings.feed_to and (settings.feed or settings.thresholds):
            rules = "COUNTERSINK_FEED" if settings.feed else "COUNTERSINK_THRESHOLDS"
            raise SettingsError(f"{rules} is set, and COUNTERSINK_FEED_TO is not: set it to where events are sent")
        return settings


_OTHERS = frozenset({"COUNTERSINK_URL", "COUNTERSINK_KEY", "COUNTERSINK_REQUIRE_ALL", "COUNTERSINK_SEEDS"})


def flaw_of_shards(number: object, most: int) -> str | None:
    """Why a counter cannot get this number of shards; None if it can. `most`: `Settings.max_shards`."""
    if type(number) is not int or not 1 <= number <= most:
        return f"must be a whole number from 1 to {most} (COUNTERSINK_MAX_SHARDS)"
    return None


def variable(name: str) -> str:
    return PREFIX + name.upper()


def promise_of(settings: Settings) -> Promise:
    return promised(Millis(settings.retention * 1_000), Millis(int(settings.spool_age * 1_000)))


def receipts_live(settings: Settings, *, of_client: bool = True) -> Millis:
    """How long a receipt lives, by these settings; `of_client`: one that may stand for a client's id."""
    return lifetime(Millis(settings.retention * 1_000), of_client=of_client)


def table() -> list[tuple[str, str, str]]:
    """Variable, default and help of each setting, for --help and the README."""
    return [(variable(f.name), f.metadata["shown"], f.metadata["help"]) for f in fields(Settings)]

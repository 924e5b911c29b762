"""Any value of an environment variable is understood, or refused by an error that names the variable."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.config import urls
from shared.config.settings import Settings, table
from shared.config.urls import is_service_link
from shared.model.buckets import DAY, HOUR, Millis, Rule
from shared.model.errors import SettingsError
from shared.model.feed import FeedRule, Levels, ThresholdRule, told, told_of
from shared.runtime.clock import SystemClock
from shared.wiring.process import receiver_of

NAMES: Final = [name for name, _, _ in table()]
PARTS: Final = st.sampled_from(
    [
        *("sqlite", "pubsub", "datastore", "redis", "rediss", "unix", "memory", "subscription=", "namespace="),
        *("://", ":///", "//", "/", "?", "#", "&", "[", "]", "[::1", ":", ":0", ":99999", "@", "..", " "),
        *("%", "%00", "%ff", "%2F", "abc", "é", "\u2100", "\uff0f", "1_0", "1e400", "nan", "-0", "٣"),
    ]
)
TEXTS: Final = st.lists(PARTS | st.text(max_size=3), max_size=8).map("".join)
READERS: Final[list[Callable[[str, str], object]]] = [urls.sqlite_file, urls.pubsub, urls.datastore, urls.redis]


@given(st.dictionaries(st.sampled_from(NAMES) | st.just("COUNTERSINK_X"), TEXTS, max_size=3))
def test_settings_are_read_or_refused_by_name(environment: dict[str, str]) -> None:
    said = None
    try:
        Settings.read(environment)
    except SettingsError as error:
        said = str(error)
    assert said is None or any(name in said for name in environment)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@given(TEXTS)
@example("sqlite:///a%00b")
@example("redis://[")
@example("pubsub://\u2100/abc")
def test_urls_are_read_or_refused_by_name(reader: Callable[[str, str], object], url: str) -> None:
    found, said = None, ""
    try:
        found = reader("COUNTERSINK_IT", url)
    except SettingsError as error:
        said = str(error)
    assert not said or "COUNTERSINK_IT" in said
    assert "\0" not in str(found)


@pytest.mark.parametrize("path", [":memory:", "~/counts.db", "$HOME/counts.db"])
def test_what_only_others_take_for_a_file_is_refused(path: str) -> None:
    with pytest.raises(SettingsError, match="must be sqlite:///FILE"):
        urls.sqlite_file("COUNTERSINK_BROKER", f"sqlite:///{path}")


def test_the_url_of_a_folder_is_refused_with_that_of_a_file_in_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"this is a folder.* sqlite:///{tmp_path}/countersink.db$"):
        urls.sqlite_file("COUNTERSINK_STORE", f"sqlite:///{tmp_path}/")
    with pytest.raises(SettingsError, match=r" sqlite:////countersink\.db$"):
        urls.sqlite_file("COUNTERSINK_STORE", "sqlite:////")


def test_settings_that_contradict_each_other_are_refused() -> None:
    beside = {"COUNTERSINK_NDB_WRITERS": "yes"}
    assert Settings.read(beside | {"COUNTERSINK_COMPACT_AFTER": "0"}).ndb_writers == "yes"
    with pytest.raises(SettingsError, match=r"COUNTERSINK_COMPACT_AFTER.*COUNTERSINK_NDB_WRITERS"):
        Settings.read(beside | {"COUNTERSINK_COMPACT_AFTER": "30"})


LINKS: Final = {
    "COUNTERSINK_SERVICE_HOST": "10.0.0.1", "COUNTERSINK_SERVICE_PORT": "8080",
    "COUNTERSINK_SERVICE_PORT_HTTP": "8080", "COUNTERSINK_PORT": "tcp://10.0.0.1:8080",
    "COUNTERSINK_PORT_8080_TCP": "tcp://10.0.0.1:8080", "COUNTERSINK_PORT_8080_TCP_PROTO": "tcp",
    "COUNTERSINK_PORT_8080_TCP_PORT": "8080", "COUNTERSINK_PORT_8080_TCP_ADDR": "10.0.0.1",
    "COUNTERSINK_INGEST_SERVICE_HOST": "fd00::1", "COUNTERSINK_INGEST_SERVICE_PORT_HTTP_ADMIN": "9090",
    "COUNTERSINK_INGEST_V2_PORT": "udp://[fd00::1]:53", "COUNTERSINK_INGEST_PORT_53_UDP_ADDR": "fd00::1",
}  # fmt: skip


def test_service_links_of_kubernetes_are_no_settings() -> None:
    assert Settings.read(LINKS | {"COUNTERSINK_LINGER_MS": "7"}) == Settings(linger_ms=7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COUNTERSINK_PORT", "8080"), ("COUNTERSINK_INGEST_PORT", "8080"), ("COUNTERSINK_PORT", ""),
        ("COUNTERSINK_PORT_8080", "tcp://10.0.0.1:8080"), ("COUNTERSINK_PORT_HTTP_TCP", "tcp://10.0.0.1:8080"),
        ("COUNTERSINK_SERVICE", "10.0.0.1"), ("COUNTERSINK_SERVICE_HOSTS", "10.0.0.1"),
        ("COUNTERSINK_SERVICE_HOST_", "10.0.0.1"), ("COUNTERSINKS_SERVICE_HOST", "10.0.0.1"),
        ("COUNTERSINK_PORT_8080_TCP_NAME", "x"), ("COUNTERSINK_ingest_SERVICE_HOST", "x"),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_service_link_is_refused(name: str, value: str) -> None:
    if name.startswith("COUNTERSINK_"):
        with pytest.raises(SettingsError, match=f"{name} is not a setting"):
            Settings.read({name: value})
    assert not is_service_link(name, value)


@pytest.mark.parametrize(
    ("name", "said"), [("TRESHOLDS", "did you mean COUNTERSINK_THRESHOLDS?"), ("FOO", "see countersink --help")]
)
def test_a_setting_that_is_unknown_is_refused_with_one_that_is_near(name: str, said: str) -> None:
    with pytest.raises(SettingsError) as wrong:
        Settings.read({f"COUNTERSINK_{name}": "=at 1"})
    assert str(wrong.value) == f"COUNTERSINK_{name} is not a setting of Countersink; {said}"


def test_no_setting_is_taken_for_a_service_link() -> None:
    assert not [name for name in NAMES for value in ("", "1", "tcp://x") if is_service_link(name, value)]


def test_limits_of_counters_are_read_or_refused_by_name() -> None:
    def read(text: str) -> list[tuple[str, int]]:
        return [(*limit,) for limit in Settings.read({"COUNTERSINK_MAX_COUNTERS": text}).max_counters]

    assert read("page:=100000, =1000000") == [("page:", 100_000), ("", 1_000_000)]
    assert read("=0") == [("", 0)]
    assert read("a=b==5,\u00e9=7,a=5") == [("a=b=", 5), ("\u00e9", 7), ("a", 5)]
    assert read("") == []


def test_rules_are_read_in_any_order() -> None:
    read = [
        Settings.read({"COUNTERSINK_WINDOWS": text}).windows
        for text in ("page:=hour/90d,day/2y;a=b=minute/36h", " a=b=minute/36h ; page:=day/2y, hour/90d")
    ]
    page = Rule("page:", (("day", Millis(732 * DAY)), ("hour", Millis(90 * DAY))))
    assert read[0] == read[1] == (Rule("a=b", (("minute", Millis(36 * HOUR)),)), page)
    assert Settings.read({"COUNTERSINK_WINDOWS": ""}).windows == ()


TO = {"COUNTERSINK_FEED_TO": "file:///events"}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_rules_are_read_and_kept() -> None:
    settings = Settings.read(TO | {"COUNTERSINK_FEED": "a=b=10s, =1h", "COUNTERSINK_THRESHOLDS": "p:=every 10,=at 5 3"})
    assert settings.feed == (FeedRule("a=b", Millis(10_000)), FeedRule("", Millis(3_600_000)))
    assert settings.thresholds == (ThresholdRule("p:", 10), ThresholdRule("", 0, (3, 5)))
    kept = told(settings.feed, settings.thresholds, settings.feed_to)
    assert told_of(kept.text()) == kept


WRONG = {
    "FEED": ["page:", "page:=", "a=10", "a=s", "a=-1s", "a=31d", "a=1s,a=2s", "x" * 401 + "=1s"],
    "MAX_COUNTERS": [
        *("5", "a:5", "a=", "a=-1", "a=1_0", "a=\u0665", "a=1e3", "a=5,,b=6", "a=5,a=6", "=1,=1", "a=2" + "0" * 12),
        *("n" * 401 + "=1", "\udc80=1"),
    ],
    "THRESHOLDS": [f"a={text}" for text in ("", "every 0", "every 1 2", "at", "at 1 1", "at x", "of 1")],
    "WINDOWS": [
        *("page:", "page:=", "page:=week/1d", "page:=hour", "page:=hour/90", "page:=hour/d", "page:=hour/-1d"),
        *("page:=day/23h", "page:=hour/101y", "page:=hour/1d,hour/2d", "a=hour/1d;a=day/1d", "=hour/1d;"),
        "n" * 401 + "=hour/1d",
    ],
}


@pytest.mark.parametrize(("variable", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_a_wrong_rule_is_one_line_that_names_the_variable(variable: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"^COUNTERSINK_{variable}=") as wrong:
        Settings.read(TO | {f"COUNTERSINK_{variable}": text})
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("FEED", "page:*=1s", "ends with '*': leave it out, as a prefix is the beginning of names"),
        ("MAX_COUNTERS", "*=5", "ends with '*'"),
        ("BADGES", "page:,post:*", "ends with '*'"),
        ("MAX_COUNTERS", "page: =1", "ends with a space"),
        ("MAX_COUNTERS", "'page:'=1000", "has quotes around it"),
        ("PIXELS", '"mail:"', "has quotes around it"),
        ("STATSD_NAME", '"{name}"', "has quotes around it"),
        ("STATSD_NAME", "statsd.${name}", "has a '$' before '{'"),
        ("WINDOWS", "page:=hour/90d,blog:=day/2y", "has two rules: put ';' between them"),
        ("WINDOWS", "page:=hour/90d,=day/1y", "has two rules: put ';' between them"),
        ("EXPIRE", "page:=400d;quota:=90d", "has two rules: put ',' between them"),
        ("THRESHOLDS", "page:=at 1000;quota:=at 1", "has two rules: put ',' between them"),
        ("SPOOL", "false", "must be a file, or off"),
        ("SPOOL", "NONE", "must be a file, or off"),
        ("AUDIENCE", '"https://counts.example.com"', "must be an audience"),
    ],
)
def test_what_would_seem_to_do_nothing_is_refused(name: str, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.read(TO | {f"COUNTERSINK_{name}": text})
    assert said in str(refused.value)


def test_the_spool_is_off_in_any_case() -> None:
    assert Settings.read({"COUNTERSINK_SPOOL": "OFF"}).spool == "off"


def test_rules_need_a_receiver_and_a_receiver_rules() -> None:
    for half, said in (
        (TO, "COUNTERSINK_FEED_TO is set, and nothing is reported to it: set COUNTERSINK_FEED or COUNTERSINK_THRESH"),
        ({"COUNTERSINK_FEED": "=1s"}, "COUNTERSINK_FEED is set, and COUNTERSINK_FEED_TO is not: set it"),
        ({"COUNTERSINK_THRESHOLDS": "=at 1"}, "COUNTERSINK_THRESHOLDS is set, and COUNTERSINK_FEED_TO is not: set it"),
    ):
        with pytest.raises(SettingsError, match=said):
            Settings.read(half)


@pytest.mark.parametrize(
    ("url", "secret", "said"),
    [
        ("http://example.com/", SECRET, "COUNTERSINK_FEED_TO"), ("ftp://a/b", SECRET, "COUNTERSINK_FEED_TO"),
        ("file://host/a", "", "COUNTERSINK_FEED_TO"), ("file:///", "", "COUNTERSINK_FEED_TO"),
        ("pubsub://project", "", "COUNTERSINK_FEED_TO"), ("pubsub://p/topic?subscription=s", "", "COUNTERSINK_FEED_TO"),
        ("https://[", SECRET, "COUNTERSINK_FEED_TO"), ("https://a/", "x", "COUNTERSINK_FEED_SECRET"),
    ],
)  # fmt: skip
def test_a_receiver_that_can_not_be_used_is_refused(url: str, secret: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as wrong:
        receiver_of(Settings(feed=(FeedRule("", Millis(0)),), feed_to=url, feed_secret=secret), "t", SystemClock())
    assert SECRET not in str(wrong.value)


async def test_the_log_does_not_show_what_may_be_secret() -> None:
    settings = Settings(feed_to="https://me:pass@example.com/hook?token=1", feed_secret=SECRET)
    receiver, where = receiver_of(settings, "t", SystemClock())
    assert where == "https://example.com/hook"
    await receiver.close()


@pytest.mark.parametrize(
    ("rule", "height", "value", "reached"),
    [
        (ThresholdRule("", 10), 0, 9, []), (ThresholdRule("", 10), -5, 10, [Levels(10, 10, 10)]),
        (ThresholdRule("", 10), 10, 35, [Levels(20, 30, 10)]), (ThresholdRule("", 10), 35, 12, []),
        (ThresholdRule("", 0, (5, 50)), 5, 50, [Levels(50, 50, 1)]),
        (ThresholdRule("", 0, (5, 50)), 0, 49, [Levels(5, 5, 1)]),
    ],
)  # fmt: skip
def test_reached_is_what_lies_between(rule: ThresholdRule, height: int, value: int, reached: list[Levels]) -> None:
    assert rule.reached(height, value) == reached

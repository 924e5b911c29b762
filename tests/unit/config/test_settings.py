"""Any value of an environment variable is understood, or refused by an error that names the variable."""

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.config import urls
from shared.config.settings import Settings, table
from shared.config.urls import is_service_link
from shared.model.errors import SettingsError

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
    ("name", "said"),
    [("TRESHOLDS", "did you mean COUNTERSINK_THRESHOLDS?"), ("FOO", "see countersink --help")],
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
    for wrong in (
        *("5", "a:5", "a=", "a=-1", "a=1_0", "a=\u0665", "a=1e3", "a=5,,b=6", "a=5,a=6", "=1,=1", "a=2" + "0" * 12),
    ):
        with pytest.raises(SettingsError, match="COUNTERSINK_MAX_COUNTERS"):
            read(wrong)
    for prefix in ("n" * 401, "\udc80"):
        with pytest.raises(SettingsError, match="COUNTERSINK_MAX_COUNTERS"):
            read(f"{prefix}=1")

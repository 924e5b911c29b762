"""Any value of an environment variable is understood, or refused by an error that names the variable."""

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.config import urls
from shared.config.settings import Settings, table
from shared.model.errors import SettingsError

NAMES: Final = [name for name, _, _ in table()]
PARTS: Final = st.sampled_from(
    [
        *(
            "sqlite",
            "pubsub",
            "datastore",
            "redis",
            "rediss",
            "unix",
            "memory",
            "://",
            ":///",
            "//",
            "/",
            "?",
            "#",
            "&",
        ),
        *(
            "subscription=",
            "namespace=",
            "[",
            "]",
            "[::1",
            ":",
            ":0",
            ":99999",
            "@",
            "%",
            "%00",
            "%ff",
            "%2F",
            "..",
            " ",
        ),
        *("abc", "é", "\u2100", "\uff0f", "1_0", "1e400", "nan", "-0", "٣"),
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

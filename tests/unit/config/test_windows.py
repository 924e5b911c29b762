"""The setting of counts by time."""

import pytest

from shared.config.settings import Settings
from shared.model.buckets import DAY, HOUR, Millis, Rule
from shared.model.errors import SettingsError


def test_rules_are_read_in_any_order() -> None:
    read = [
        Settings.read({"COUNTERSINK_WINDOWS": text}).windows
        for text in ("page:=hour/90d,day/2y;a=b=minute/36h", " a=b=minute/36h ; page:=day/2y, hour/90d")
    ]
    page = Rule("page:", (("day", Millis(732 * DAY)), ("hour", Millis(90 * DAY))))
    assert read[0] == read[1] == (Rule("a=b", (("minute", Millis(36 * HOUR)),)), page)
    assert Settings.read({"COUNTERSINK_WINDOWS": ""}).windows == ()


@pytest.mark.parametrize(
    "text",
    [
        "page:", "page:=", "page:=week/1d", "page:=hour", "page:=hour/90", "page:=hour/d", "page:=hour/-1d",
        "page:=day/23h", "page:=hour/101y", "page:=hour/1d,hour/2d", "a=hour/1d;a=day/1d", "=hour/1d;",
        "n" * 401 + "=hour/1d",
    ],
)  # fmt: skip
def test_a_wrong_one_is_one_line_that_names_the_variable(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^COUNTERSINK_WINDOWS") as wrong:
        Settings.read({"COUNTERSINK_WINDOWS": text})
    assert "\n" not in str(wrong.value)

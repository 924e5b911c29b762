"""The settings of the feed."""

import pytest

from shared.config.settings import Settings
from shared.model.buckets import Millis
from shared.model.errors import SettingsError
from shared.model.feed import FeedRule, Levels, ThresholdRule, told, told_of
from shared.runtime.clock import SystemClock
from shared.wiring.feed import receiver_of

TO = {"COUNTERSINK_FEED_TO": "file:///events"}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_rules_are_read_and_kept() -> None:
    settings = Settings.read(TO | {"COUNTERSINK_FEED": "a=b=10s, =1h", "COUNTERSINK_THRESHOLDS": "p:=every 10,=at 5 3"})
    assert settings.feed == (FeedRule("a=b", Millis(10_000)), FeedRule("", Millis(3_600_000)))
    assert settings.thresholds == (ThresholdRule("p:", 10), ThresholdRule("", 0, (3, 5)))
    kept = told(settings.feed, settings.thresholds, settings.feed_to)
    assert told_of(kept.text()) == kept


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        *[("FEED", text) for text in ("page:", "page:=", "a=10", "a=s", "a=-1s", "a=31d", "a=1s,a=2s")],
        ("FEED", "x" * 401 + "=1s"),
        *[("THRESHOLDS", f"a={text}") for text in ("", "every 0", "every 1 2", "at", "at 1 1", "at x", "of 1")],
    ],
)  # fmt: skip
def test_a_wrong_rule_is_one_line_that_names_the_variable(variable: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"^COUNTERSINK_{variable}=") as wrong:
        Settings.read(TO | {f"COUNTERSINK_{variable}": text})
    assert "\n" not in str(wrong.value)


def test_rules_need_a_receiver_and_a_receiver_rules() -> None:
    for half in (TO, {"COUNTERSINK_FEED": "=1s"}, {"COUNTERSINK_THRESHOLDS": "=at 1"}):
        with pytest.raises(SettingsError, match="COUNTERSINK_FEED_TO"):
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

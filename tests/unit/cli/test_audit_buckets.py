"""Since when shorter periods must add up to longer ones, and which of them do not."""

from contextlib import closing

import pytest

from countersink_server.cli.audit import Ledger, whole_since
from shared.config.lists import rules_of
from shared.model.buckets import DAY, FOR_EVER, HOUR, Followed, TimeBucket
from shared.ports.store import BucketShard

NOW = 1_000 * DAY
BOTH = Followed(rules_of("p:=hour/90d,day/2y"), FOR_EVER)
ENDED = 990 * DAY + 5


@pytest.mark.parametrize(
    ("followed", "counter", "since"),
    [
        ([], "p:a", FOR_EVER),
        ([BOTH], "p:a", 910 * DAY),
        ([BOTH], "q", FOR_EVER),
        ([BOTH, Followed((), ENDED)], "p:a", ENDED),
        ([BOTH, Followed(rules_of("p:=day/2y"), ENDED)], "p:a", ENDED),
        ([BOTH, Followed(rules_of("p:=hour/1d,day/2y"), ENDED)], "p:a", ENDED),
        ([BOTH, Followed(rules_of("p:=hour/20d,day/2y"), ENDED)], "p:a", 980 * DAY),
        ([BOTH, Followed(rules_of("p:=hour/1y,day/2y"), FOR_EVER)], "p:a", 910 * DAY),
        ([BOTH, Followed(rules_of("p:=day/2y;p:a=hour/1d,day/1d"), ENDED)], "p:a", ENDED),
    ],
)
def test_only_what_all_rules_kept_and_keep_is_compared(followed: list[Followed], counter: str, since: int) -> None:
    assert whole_since(followed, counter, "hour", "day", NOW) == since


def torn(*counts: tuple[str, str, int, int], names: tuple[str, ...] = ()) -> tuple[int, dict[str, str]]:
    """How many were compared, and what is wrong. Counts: counter, period, begin, and the sum of one shard."""
    with closing(Ledger(names, 0)) as ledger:
        ledger.take_buckets([BucketShard(TimeBucket(*one), held) for *one, held in counts])  # type: ignore[arg-type] # mypy knows no star in the middle
        ledger.compare([Followed(rules_of("=minute/90d,hour/90d,day/90d;x=hour/90d"), FOR_EVER)], NOW)
        return ledger.compared, {line.counter: line.torn for line in ledger.lines() if line.torn}


TODAY = 999 * DAY
WELL = (
    ("a", "minute", TODAY, 3), ("a", "minute", TODAY + 59 * 60_000, -1), ("a", "minute", TODAY + HOUR, 2**62),
    ("a", "minute", TODAY + HOUR, 2**62), ("a", "hour", TODAY, 2), ("a", "hour", TODAY + HOUR, 2**62),
    ("a", "hour", TODAY + HOUR, 2**62), ("a", "day", TODAY, 2**62 + 2), ("a", "day", TODAY, 2**62),
)  # fmt: skip


def test_sums_that_are_large_or_negative_agree() -> None:
    assert torn(*WELL) == (4, {})


def test_a_period_that_is_missing_counts_as_nothing() -> None:
    assert torn(*WELL[:-1])[1] == {
        "a": f"the minutes of the day from 1972-09-26T00:00:00.000Z sum to {2**63 + 2}, and the day has {2**62 + 2}"
    }
    assert torn(("b", "day", TODAY, 0)) == (2, {})
    assert set(torn(("b", "hour", TODAY, 1))[1]) == {"b"}
    assert set(torn(("b", "minute", TODAY, -1))[1]) == {"b"}


def test_what_is_not_kept_twice_or_not_asked_for_is_not_compared() -> None:
    assert torn(("x", "hour", TODAY, 1), ("x", "day", TODAY, 2)) == (0, {})
    assert torn(("b", "hour", 0, 1)) == (0, {})
    assert torn(*WELL, ("b", "hour", TODAY, 1), names=("a",)) == (4, {})


def test_each_day_is_compared_however_many_there_are() -> None:
    days = [("a", by, when * DAY, 5) for when in range(910, 1_000) for by in ("minute", "hour", "day")]
    many = [(f"{name}", by, TODAY, 5) for name in range(700) for by in ("minute", "hour", "day")]
    assert torn(*days, *many) == (3 * (90 + 700), {})
    wrong = torn(*days, *many, ("699", "day", TODAY, 1), ("a", "day", 999 * DAY, 1))[1]
    assert set(wrong) == {"699", "a"}

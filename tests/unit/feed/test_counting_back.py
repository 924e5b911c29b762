"""Thresholds on Datastore: what a commit changed is counted back from the total, and since when that is right."""

from hypothesis import given
from hypothesis import strategies as st

from shared.config.lists import threshold_rules
from shared.datastore.thresholds import FOLLOWED, Step, covered, holds, steps
from shared.model.buckets import Instant

COMMITS = st.lists(st.tuples(st.integers(-(2**70), 2**70), st.booleans()), max_size=8)


@given(st.integers(-9, 9), COMMITS)
def test_each_commit_is_found_again(first: int, commits: list[tuple[int, bool]]) -> None:
    rows, wanted = [], []
    total, generation = first, 7
    last_set = max((place for place, (_, sets) in enumerate(commits) if sets), default=-1)
    for place, (delta, sets) in enumerate(commits):
        rows.append((delta, (generation, place + 100) if sets else ()))
        generation = place + 100 if sets else generation
        known = place <= last_set
        wanted.append(Step(total, total + delta, generation if known else None))
        total += delta
    assert steps(total, rows) == wanted


def test_thresholds_are_covered_from_the_first_rules_that_had_the_prefix() -> None:
    first = covered({}, threshold_rules("page:=every 10,=at 5"))
    assert first == {"page:": 0, "": 0}
    known = {"page:": 1_000, "": 2_000, "quota:": 3_000}
    later = covered(known, threshold_rules("page:=every 20,page:a=at 7,new:=at 7"))
    assert later == {"page:": 1_000, "page:a": 1_000, "new:": 2_000}
    assert covered({"page:": 0}, threshold_rules("page:=at 3")) == {"page:": 0}
    assert covered({"page:a": 5}, threshold_rules("page:=at 3")) == {"page:": 0}, "other names were not"


def test_they_hold_when_no_commit_follows_other_rules() -> None:
    over = Instant((1_000 + FOLLOWED) * 1_000)
    since = {"page:": 1_000, "page:a": 0, "quota:": 10**12}
    assert holds("page:a", over, since)
    assert not holds("page:a", Instant(over - 1), since)
    assert not holds("quota:a", over, since)
    assert not holds("other", over, since)

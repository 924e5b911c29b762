"""Mutations of counts by time."""

from typing import Any

from shared.model.buckets import ByTime
from tests.mutations.mutation import mutation, returning

SERIES = "tests/http/test_series.py"
BUCKETS = "tests/unit/model/test_buckets.py"
STORE = "tests/contracts/test_sqlite.py"

mutation("a commit adds to no bucket", "flusher.flush.commit_loop.by_time_of", SERIES)(returning(ByTime()))


@mutation("buckets have the time of the commit", "flusher.flush.window.buckets_of", SERIES)
def _(buckets_of: Any) -> Any:
    return lambda rules, _, sums: buckets_of(rules, 10**12, sums)


@mutation("a series lacks what is pending", "shared.counters.series.pending", SERIES)
def _(pending: Any) -> Any:
    return lambda base, view, _: pending(base, view)


@mutation("a bucket is whole whatever rules there were", "shared.sqlite.buckets.followed_after", STORE, SERIES)
def _(followed_after: Any) -> Any:
    return lambda before, rules, _: followed_after(before, rules, 0)


@mutation("a shorter retention is as good", "shared.model.buckets.retention_of", BUCKETS)
def _(retention_of: Any) -> Any:
    return lambda *asked: retention_of(*asked) and 1

"""Mutations of counts by time."""

from typing import Any

from shared.model.buckets import FOR_EVER, ByTime, followed_of
from tests.mutations.mutation import around, mutation, replaced, returning

SERIES = "tests/http/test_series.py"
BUCKETS = "tests/unit/model/test_buckets.py"
STORE = "tests/contracts/test_sqlite.py"
AUDIT = "tests/unit/cli/test_audit_buckets.py"
AUDIT_OF_FILE = "tests/cli/test_audit.py"
EXPORTS = "tests/http/test_export_series.py"
DATASTORE = "tests/emulators/test_datastore_by_time.py"
FOLLOWED = "shared.datastore.buckets."

mutation("a commit adds to no bucket", "flusher.flush.commit_loop.by_time_of", SERIES)(returning(ByTime()))

mutation("buckets have the time of the commit", "flusher.flush.window.buckets_of", SERIES)(
    lambda buckets_of: lambda rules, _, sums: buckets_of(rules, 10**12, sums)
)

mutation("a series lacks what is pending", "shared.counters.pending.pending", SERIES)(
    lambda pending: lambda base, view, *_: pending(base, view)
)

mutation("a bucket is whole whatever rules there were", "shared.model.buckets.followed_after", STORE, SERIES)(
    lambda followed_after: lambda before, rules, _: followed_after(before, rules, 0)
)

mutation("a commit adds to periods that are closed", "shared.model.buckets.moved", STORE, SERIES)(
    lambda _: lambda adds, closed, latest: adds
)

mutation("what is pending is shown in periods that are closed", "shared.counters.series.dated", SERIES)(
    lambda _: lambda when, closed, latest: when
)

mutation("a commit to Datastore does not look at what is closed", "shared.datastore.commit.moved", DATASTORE)(
    lambda _: lambda adds, closed, latest: adds
)

mutation("a shorter retention is as good", "shared.model.buckets.retention_of", BUCKETS)(
    lambda retention_of: lambda *asked: retention_of(*asked) and 1
)

mutation("a promise of rules is made once and for ever", FOLLOWED + "followed_too", DATASTORE)(
    lambda followed_too: lambda before, one: [*before] or [one]
)


@replaced("nobody asks what was counted before", FOLLOWED + "followed_in", DATASTORE)
async def _(client: Any, found: Any, time: Any, *, unknown: int) -> Any:
    return followed_of(found.entity.properties["followed"].blob_value) if found else []


@around("a snapshot lacks the buckets of the last entity", "shared.datastore.buckets._entities_at", DATASTORE)
async def _(entities_at: Any, *at: Any, **which: Any) -> Any:
    return (await entities_at(*at, **which))[:-1]


AUDITED = "countersink_server.cli.audit.whole_since"
mutation("an audit compares periods that were not both kept", AUDITED, AUDIT, AUDIT_OF_FILE)(returning(0))
mutation("an audit compares no periods", AUDITED, AUDIT, AUDIT_OF_FILE)(returning(FOR_EVER))

mutation("an export skips what does not fit into a chunk", "flusher.jobs.PageOutcome", EXPORTS)(
    lambda outcome: lambda visited, chunk, left=0: outcome(visited, chunk=chunk)
)

mutation("an export has counts from before they were whole", "shared.counters.series.since_of", EXPORTS)(
    lambda _: lambda *_: 0
)

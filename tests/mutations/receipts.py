"""Mutations of receipts: their keys, how long they live, and what they say."""

from typing import Any

from shared.model.buckets import HOUR
from shared.model.receipts import FORCE
from tests.mutations.mutation import around, calling, mutation
from tests.mutations.places import AGES, FLUSHER, SEEDS, SET_OVER_HTTP, STORE

_PARTS = "tests/unit/model/test_words.py"
_PROMISES = "tests/unit/model/test_receipts.py"


mutation("the parts of a divided envelope share one receipt", "shared.model.receipts.key_of_part", _PARTS)(
    lambda key_of_part: lambda envelope_id, _: key_of_part(envelope_id, 0)
)

mutation("the key of an id forgets its counter", "shared.model.receipts.key_of_increment", _PARTS, *FLUSHER)(
    lambda key_of_increment: lambda _, client_id: key_of_increment("", client_id)
)

mutation(
    "the greatest promise judges how old an envelope may be",
    "shared.model.receipts.Promises.until",
    _PROMISES,
    *FLUSHER,
)(calling(min=max))

mutation("an entry is forgotten by what flushers of long ago promised", "shared.model.receipts.ages", _PROMISES, AGES)(
    calling(FORCE=10**18)
)


@around("an entry lives no longer than the greatest promise", "shared.model.receipts.ages", _PROMISES)
def _(ages: Any, promises: Any, now: int) -> Any:
    found = ages(promises, now)
    if not promises:
        return found
    longest = max(one.life for one in promises) - HOUR - HOUR // 2
    bound = max(one.seen for one in promises) + FORCE
    return found._replace(over=max(0, min(now - longest - HOUR, bound)))


mutation("receipts say of a commit what was planned for another", "shared.model.receipts.notes_of_commit", SEEDS)(
    lambda written: (
        lambda attempts, commit, tally, sums, *more: written(attempts, commit, tally, dict.fromkeys(sums, 1), *more)
    )
)


_DUPLICATES = "tests/http/test_idempotency.py"


mutation(
    "receipts do not say which uses of ids were not counted", "shared.model.receipts.notes_of_commit", _DUPLICATES
)(lambda written: lambda attempts, commit, tally, sums, _=None: written(attempts, commit, tally, sums))


@around(
    "receipts say of the next envelope which ids were used before", "shared.model.receipts.notes_of_commit", _DUPLICATES
)
def _(written: Any, attempts: Any, commit: str, tally: Any, sums: Any, seconds: Any = None) -> Any:
    return written(attempts, commit, tally, sums, {place + 1: its for place, its in (seconds or {}).items()})


mutation(
    "a receipt that does not say who counted is taken for that of another",
    "ingest.accept.drafts._is_second",
    "tests/unit/accept/test_drafts.py",
    _DUPLICATES,
)(lambda _: lambda draft, notes: any(note.attempt != draft.attempt for note in notes.values()))

mutation(
    "a request is told of the uses of others in its envelope",
    "ingest.accept.drafts._second_in",
    "tests/unit/accept/test_drafts.py",
    _DUPLICATES,
)(lambda second_in: lambda draft, _, notes: second_in(draft, range(len(draft.keyed)), notes))

mutation(
    "the receipt of a set does not say what it added", "shared.model.receipts.notes_of_change", SET_OVER_HTTP, SEEDS
)(lambda of_change: lambda commit, counter, deltas, *change: of_change(commit, counter, [0 for _ in deltas], *change))

mutation("dead receipts expire", "shared.model.dead_letters.with_body", STORE)(
    lambda with_body: lambda dead, *others: with_body(dead, *others)._replace(expires=dead.expires)
)

"""Stores with one mistake each about guards, marks, compactions, or counts by time."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from shared.model.buckets import ByTime, StoreMillis, WallMillis
from shared.model.errors import AlreadyAppliedError, ChangedError, CrowdedError
from shared.model.words import Commit, Guard, Receipt
from tests.contracts.broken import Fault, after, before, calls, gives, leaves, nothing
from tests.contracts.broken_stores import (
    although,
    commits,
    each,
    new_versions,
    parts_changed,
    reads_late,
    with_parts,
)
from tests.world.memory.buckets import MemoryBuckets
from tests.world.memory.store import MemoryStore

Right = Callable[..., Any]


def _without(counter: str, shards: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    return {shard: count for shard, count in shards.items() if shard[0] != counter}


def _of(counter: str, shards: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    return {shard: count for shard, count in shards.items() if shard[0] == counter}


async def _remove_what_it_saw_before(store: MemoryStore, right: Right, counter: str) -> Any:
    """What others add between its look and its deletion is lost."""
    held = store._held(counter)
    await asyncio.sleep(0)
    if held:
        return False
    store._shards = _without(counter, store._shards)
    return await right(counter)


async def _remove_unseen(store: MemoryStore, right: Right, counter: str) -> Any:
    """Who saw what it removed takes it for being there."""
    version = store._guards.get(counter, Guard()).version
    removed = await right(counter)
    if removed:
        store._guards = store._guards | {counter: Guard(version)}
    return removed


async def _keep_the_first_mark(store: MemoryStore, right: Right, commit: Commit) -> Any:
    guards = store._guards
    time = await right(commit)
    if commit.guard is not None and (old := guards.get(commit.guard[0])):
        now = store._guards[commit.guard[0]]
        store._guards = store._guards | {commit.guard[0]: now._replace(deleted=old.deleted)}
    return time


def _any_version(store: MemoryStore, commit: Commit) -> Commit:
    if commit.guard is None:
        return commit
    counter, guard = commit.guard
    return replace(commit, guard=(counter, guard._replace(version=store._guards.get(counter, Guard()).version)))


GUARDS: Final[dict[str, Fault]] = {
    "checks no guard": commits(_any_version),
    "leaves guards": leaves("apply", "_guards"),
    "applies before it looks": although(ChangedError, receipts=(), guard=None),
    "leaves the receipt": although(ChangedError, adds=(), guard=None),
    "keeps the first mark": calls(apply=_keep_the_first_mark),
    "one guard for all": after(
        "apply",
        "_guards",
        lambda store, commit: store._guards | ({"c": store._guards[commit.guard[0]]} if commit.guard else {}),
    ),
    "guards increments, so that these disturb sets": after(
        "apply", "_guards", lambda store, commit: new_versions(store, [add.counter for add in commit.adds])
    ),
    "skips what changes nothing": commits(lambda _, commit: commit if commit.adds else replace(commit, guard=None)),
    "guard of now, so that two sets may add up": reads_late("_guards"),
    "removes what is used": before("remove", "_shards", lambda store, counter: _without(counter, store._shards)),
    "removes what is not marked": before(
        "remove",
        "_guards",
        lambda store, counter: (
            store._guards
            | {name: store._guards.get(name, Guard())._replace(deleted=True) for name in {counter} & {*store._configs}}
        ),
    ),
    "leaves the mark": leaves("remove", "_guards"),
    "leaves shards": leaves("remove", "_shards"),
    "leaves the config": leaves("remove", "_configs"),
    "removes the guard": after(
        "remove",
        "_guards",
        lambda store, counter: {
            name: guard for name, guard in store._guards.items() if name != counter or name in store._configs
        },
    ),
    "removes unseen": calls(remove=_remove_unseen),
    "removes what it saw before": calls(remove=_remove_what_it_saw_before),
    "finds all at once": calls(deleted=lambda _, right, after, limit: right(after, 10**6)),
    "finds the first again": gives(
        "deleted",
        lambda store, _, after, limit: sorted(
            name for name, guard in store._guards.items() if guard.deleted and name >= after
        )[:limit],
    ),
    "takes a guard for a mark": gives(
        "deleted_among", lambda store, _, counters: {counter for counter in counters if counter in store._guards}
    ),
    "tells all that are marked": calls(deleted_among=lambda store, right, counters: right([*store._guards])),
}


def _seen(store: MemoryStore, mark: Any) -> Any:
    return mark._replace(seen=store._marks.get(mark[:2], 0))


def _seen_if_there(store: MemoryStore, mark: Any) -> Any:
    return _seen(store, mark) if bool(mark.seen) == (mark[:2] in store._marks) else mark


async def _check_before_it_waits(store: MemoryStore, right: Right, commit: Commit) -> Any:
    if any(store._marks.get(mark[:2], 0) != mark.seen for mark in commit.marks):
        raise ChangedError("as seen before")
    await asyncio.sleep(0)
    return await right(parts_changed(commit, "marks", lambda mark: _seen(store, mark)))


async def _move_marks_first(store: MemoryStore, right: Right, commit: Commit) -> Any:
    store._marks = store._marks | {mark[:2]: mark.total for mark in commit.marks}
    return await right(parts_changed(commit, "marks", lambda mark: mark._replace(seen=mark.total)))


async def _joined_marks(store: MemoryStore, right: Right, source: str, counters: Sequence[str]) -> Any:
    found = await right("", [source + counter for counter in counters])
    return {name.removeprefix(source): total for name, total in found.items()}


MARKS: Final[dict[str, Fault]] = {
    "checks no mark": each("marks", _seen),
    "checks whether there is one": each("marks", _seen_if_there),
    "checks the first mark": commits(
        lambda store, commit: replace(
            commit, marks=(*commit.marks[:1], *(_seen(store, mark) for mark in commit.marks[1:]))
        )
    ),
    "checks before it waits": calls(apply=_check_before_it_waits),
    "leaves marks": commits(lambda _, commit: replace(commit, marks=())),
    "moves marks first": calls(apply=_move_marks_first),
    "adds to marks": each("marks", lambda store, mark: mark._replace(total=mark.total + store._marks.get(mark[:2], 0))),
    "keeps the greatest mark": each(
        "marks", lambda store, mark: mark._replace(total=max(mark.total, store._marks.get(mark[:2], 0)))
    ),
    "adds though it changed": although(ChangedError, receipts=(), marks=(), guard=None),
    "one mark for all sources": calls(
        apply=lambda _, right, commit: right(parts_changed(commit, "marks", lambda mark: mark._replace(source=""))),
        marks=lambda _, right, source, counters: right("", counters),
    ),
    "joins source and counter": calls(
        apply=lambda _, right, commit: right(
            parts_changed(commit, "marks", lambda mark: mark._replace(source="", counter=mark.source + mark.counter))
        ),
        marks=_joined_marks,
    ),
    "removes the mark": after(
        "remove",
        "_marks",
        lambda store, counter: {
            mark: total for mark, total in store._marks.items() if mark[1] != counter or counter in store._configs
        },
    ),
    "forgets marks when it is set": after(
        "apply",
        "_marks",
        lambda store, commit: {
            mark: total for mark, total in store._marks.items() if not commit.guard or mark[1] != commit.guard[0]
        },
    ),
    "marks disturb sets": after(
        "apply", "_guards", lambda store, commit: new_versions(store, [mark.counter for mark in commit.marks])
    ),
}


async def _raise_too(store: MemoryStore, right: Right, counter: str, num_shards: int, receipt: Receipt) -> Any:
    number = await right(counter, num_shards, receipt)
    store._configs = store._configs | {counter: num_shards}
    return number or num_shards


async def _drop_what_is_moved(store: MemoryStore, right: Right, counter: str, number: int, receipt: Receipt) -> Any:
    kept = {shard: count for shard, count in store._shards.items() if shard[0] != counter or shard[1] < number}
    now = await right(counter, number, receipt)
    store._shards = kept
    return now


async def _leave_the_highest(store: MemoryStore, right: Right, counter: str, number: int, receipt: Receipt) -> Any:
    """A shard that is still there may be updated, and nobody reads it."""
    highest = {shard: 0 for shard in store._shards if shard[0] == counter and shard[1] >= number}
    now = await right(counter, number, receipt)
    store._shards = highest | store._shards
    return now


async def _move_what_it_saw_before(
    store: MemoryStore, right: Right, counter: str, number: int, receipt: Receipt
) -> Any:
    seen = _of(counter, store._shards)
    await asyncio.sleep(0)
    store._shards = store._shards | seen
    return await right(counter, number, receipt)


async def _overfill(store: MemoryStore, right: Right, counter: str, number: int, receipt: Receipt) -> Any:
    try:
        now = await right(counter, number, receipt)
    except CrowdedError:
        store._shards = _without(counter, store._shards) | {(counter, 0): store._held(counter)}
        store._configs = store._configs | {counter: number}
        return number
    return now


def _all_in_the_first(store: MemoryStore, counter: str, *_: object) -> dict[tuple[str, int], int]:
    held = _of(counter, store._shards)
    return store._shards | dict.fromkeys(held, 0) | ({(counter, 0): sum(held.values())} if held else {})


async def _make_anew_out_of_sight(store: MemoryStore, right: Right, commit: Commit) -> Any:
    """What is added to it, nobody reads."""
    configs = store._configs
    time = await right(parts_changed(commit, "adds", lambda add: add._replace(known=0)))
    store._configs = store._configs | configs
    return time


async def _tell_who_makes_it_anew(store: MemoryStore, right: Right, commit: Commit) -> Any:
    """Whoever removes a counter makes those wait for ever who believe in it."""
    configs = store._configs
    store._configs = {add.counter: 1 for add in commit.adds if add.known > 1} | configs
    try:
        return await right(commit)
    except Exception:
        store._configs = configs
        raise


async def _bring_the_others_back(store: MemoryStore, right: Right, commit: Commit) -> Any:
    new = {add for add in commit.adds if (add.counter, add.shard) not in store._shards}
    time = await right(commit)
    for add in new:
        store._configs = store._configs | {add.counter: max(store._configs[add.counter], add.num_shards)}
    return time


COMPACTIONS: Final[dict[str, Fault]] = {
    "drops what is moved": calls(compact=_drop_what_is_moved),
    "leaves the highest": calls(compact=_leave_the_highest),
    "leaves the number": leaves("compact", "_configs"),
    "raises too": calls(compact=_raise_too),
    "forgets the receipt": leaves("compact", "_receipts"),
    "compacts twice": before(
        "compact",
        "_receipts",
        lambda store, counter, number, receipt: {k: one for k, one in store._receipts.items() if k != receipt.key},
    ),
    "receipt of nothing": after(
        "compact", "_receipts", lambda store, counter, number, receipt: store._receipts | {receipt.key: receipt}
    ),
    "makes anew what went": each("adds", lambda _, add: add._replace(known=0)),
    "makes anew out of sight": calls(apply=_make_anew_out_of_sight),
    "tells who makes it anew": calls(apply=_tell_who_makes_it_anew),
    "brings the others back": calls(apply=_bring_the_others_back),
    "loses what comes meanwhile": calls(compact=_move_what_it_saw_before),
    "overfills": calls(compact=_overfill),
    "all into the first": after("compact", "_shards", _all_in_the_first),
    "changes the guard, so that a compaction disturbs sets": after(
        "compact", "_guards", lambda store, counter, *_: store._guards | {counter: Guard(store._time)}
    ),
    "finds all": calls(grown=lambda _, right, shards: right(0)),
    "finds those that have as many": calls(grown=lambda _, right, shards: right(shards - 1)),
    "always makes": calls(raise_shards=lambda _, right, counter, number, *, make: right(counter, number)),
    "knows the age of all": gives("ages", lambda _, ages, shards: dict.fromkeys(shards, 0.0)),
    "old when written": gives("ages", lambda _, ages, shards: {shard: age + 1e9 for shard, age in ages.items()}),
}


async def _add_to_buckets_though_refused(store: MemoryStore, right: Right, commit: Commit) -> Any:
    try:
        return await right(commit)
    except AlreadyAppliedError:
        store._buckets = store._buckets.after(commit.by_time, 0)
        raise


def _into_one_shard(store: MemoryStore, commit: Commit) -> Commit:
    if commit.by_time is None:
        return commit
    adds = tuple(add._replace(shard=0) for add in commit.by_time.adds)
    return replace(commit, by_time=ByTime(adds, commit.by_time.rules))


def _without_empty_rules(store: MemoryStore, commit: Commit) -> Commit:
    return replace(commit, by_time=None) if commit.by_time is not None and not commit.by_time.rules else commit


async def _never_renew(store: MemoryStore, right: Right, commit: Commit) -> Any:
    was = store._buckets
    time = await right(commit)
    now = store._buckets
    kept = {key: (held[0], was.shards.get(key, held)[1]) for key, held in now.shards.items()}
    store._buckets = MemoryBuckets(kept, now.dates)
    return time


async def _sweep_all_buckets(store: MemoryStore, right: Right, now: StoreMillis, limit: int) -> Any:
    store._buckets, gone = store._buckets.swept(StoreMillis(1 << 60), limit)
    swept = await right(now, limit)
    return gone + swept


async def _check_no_bucket(store: MemoryStore, right: Right, commit: Commit) -> Any:
    kept, store._buckets = store._buckets, MemoryBuckets()
    try:
        time = await right(replace(commit, by_time=None))
    finally:
        store._buckets = kept
    store._buckets = kept.after(commit.by_time, 1)
    return time


def _dated(store: MemoryStore, **dates: Any) -> MemoryBuckets:
    return MemoryBuckets(store._buckets.shards, store._buckets.dates._replace(**dates))


async def _reopen(store: MemoryStore, right: Right, until: WallMillis) -> None:
    store._buckets = _dated(store, closed=until)


async def _add_to_closed_periods(store: MemoryStore, right: Right, commit: Commit) -> Any:
    closed = store._buckets.dates.closed
    store._buckets = _dated(store, closed=0)
    try:
        return await right(commit)
    finally:
        await store.close_periods(closed)


BY_TIME: Final[dict[str, Fault]] = {
    "adds to buckets though refused": calls(apply=_add_to_buckets_though_refused),
    "adds to no bucket": commits(
        lambda _, commit: replace(commit, by_time=ByTime((), commit.by_time.rules if commit.by_time else ()))
    ),
    "takes one shard": commits(_into_one_shard),
    "takes a set for a flush": commits(lambda _, commit: replace(commit, by_time=commit.by_time or ByTime())),
    "forgets other rules": commits(_without_empty_rules),
    "never renews": calls(apply=_never_renew),
    "sweeps all buckets": calls(sweep=_sweep_all_buckets),
    "checks no bucket": calls(apply=_check_no_bucket),
    "adds to closed periods": calls(apply=_add_to_closed_periods),
    "closes nothing": calls(close_periods=nothing),
    "dates the future": before("apply", "_buckets", lambda store, _: _dated(store, latest=1 << 60)),
    "reopens": calls(close_periods=_reopen),
}


async def _largest_with_all(store: MemoryStore, right: Right, snapshot: Any, prefixes: Any, limit: int, _: Any) -> Any:
    return await right(snapshot, prefixes, limit, {})


async def _largest_of_now(store: MemoryStore, right: Right, _: Any, *asked: Any) -> Any:
    async with store.snapshot() as present:
        return await right(present, *asked)


def _ranks(**parts: Callable[[Any], Any]) -> Fault:
    """It ranks as if parts of the snapshot were others."""
    return calls(largest=lambda _, right, snapshot, *asked: right(with_parts(snapshot, **parts), *asked))


RANKS: Final[dict[str, Fault]] = {
    "gives places to what is looked at anyway": calls(largest=_largest_with_all),
    "ranks by the present": calls(largest=_largest_of_now),
    "ranks without the dead": _ranks(dead=lambda _: {}),
    "gives places to what was deleted": _ranks(_guards=lambda _: {}),
    "ranks by first shards": _ranks(configs=lambda snapshot: dict.fromkeys(snapshot.configs, 1)),
    "ranks without prefixes": calls(
        largest=lambda _, right, snapshot, __, limit, pending: right(snapshot, [""], limit, pending)
    ),
}

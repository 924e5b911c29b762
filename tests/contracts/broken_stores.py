"""Stores with one mistake each."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final

from shared.model.buckets import BEGINNING, Instant, StoreMillis, WallSeconds
from shared.model.errors import RefusedError
from shared.model.words import DEAD, Bounds, Commit, Guard, Receipt, Receipts, Total
from tests.contracts.broken import Fault, after, before, calls, gives, leaves
from tests.world.memory.audit_data import MemoryAuditData
from tests.world.memory.buckets import MemoryBuckets
from tests.world.memory.store import MemorySnapshot, MemoryStore

Right = Callable[..., Any]


def commits(change: Callable[[Any, Commit], Commit]) -> Fault:
    """The store applies another commit than that which it was given."""

    async def apply(store: MemoryStore, right: Right, commit: Commit) -> Any:
        return await right(change(store, commit))

    return calls(apply=apply)


def each(part: str, change: Callable[[Any, Any], Any]) -> Fault:
    """The store changes each receipt, add or mark of a commit before it applies them."""
    return commits(lambda store, commit: parts_changed(commit, part, lambda one: change(store, one)))


def parts_changed(commit: Commit, part: str, change: Callable[[Any], Any]) -> Commit:
    parts: Any = {part: tuple(map(change, getattr(commit, part)))}
    return replace(commit, **parts)


def although(error: type[Exception], **without: Any) -> Fault:
    """The store refuses a commit as it should, and applies it yet, except for some of its parts."""

    async def apply(store: MemoryStore, right: Right, commit: Commit) -> Any:
        try:
            return await right(commit)
        except error:
            await right(replace(commit, **without))
            raise

    return calls(apply=apply)


def shows(change: Callable[[Any, MemoryAuditData], None]) -> Fault:
    """The store changes its data for an audit."""

    @asynccontextmanager
    async def audit_data(store: MemoryStore, right: Right) -> AsyncIterator[MemoryAuditData]:
        async with right() as data:
            change(store, data)
            yield data

    return calls(audit_data=audit_data)


def reads(change: Callable[[Any, MemorySnapshot], MemorySnapshot]) -> Fault:
    """The store gives other snapshots."""

    @asynccontextmanager
    async def snapshot(store: MemoryStore, right: Right) -> AsyncIterator[MemorySnapshot]:
        async with right() as then:
            yield change(store, then)

    return calls(snapshot=snapshot)


def reading(read: Callable[..., Any]) -> Fault:
    """Its snapshots are read otherwise: `read` is called with the store, the snapshot, and all arguments."""

    def changed(store: MemoryStore, then: MemorySnapshot) -> MemorySnapshot:
        then.__dict__["read"] = partial(read, store, then)
        return then

    return reads(changed)


def reads_late(part: str) -> Fault:
    """A part of its snapshots is that of the moment at which they are read."""

    async def read(store: MemoryStore, then: MemorySnapshot, *asked: Any) -> Any:
        setattr(then, part, getattr(store, part))
        return await MemorySnapshot.read(then, *asked)

    return reading(read)


def with_parts(snapshot: MemorySnapshot, **parts: Callable[[Any], Any]) -> MemorySnapshot:
    """Parts of it are others: each is made of the snapshot."""
    for name, part in parts.items():
        setattr(snapshot, name, part(snapshot))
    return snapshot


def new_versions(store: MemoryStore, counters: Collection[str]) -> dict[str, Guard]:
    new = {name: store._guards[name]._replace(version=store._time) for name in counters if name in store._guards}
    return store._guards | new


def _int64(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


async def _apply_in_halves(store: MemoryStore, right: Right, commit: Commit) -> Any:
    await right(Commit((), commit.adds[:1]))
    return await right(Commit(commit.receipts, commit.adds[1:]))


async def _lose_updates(store: MemoryStore, right: Right, commit: Commit) -> Any:
    shards = store._shards
    await asyncio.sleep(0)
    store._shards = shards
    return await right(commit)


async def _lower_shards(store: MemoryStore, right: Right, counter: str, number: int, *, make: bool) -> Any:
    store._configs = store._configs | {counter: number}
    return number


async def _fill_shards(store: MemoryStore, right: Right, commit: Commit) -> Any:
    shards, store._shards = store._shards, {}
    time = await right(commit)
    added, store._shards = store._shards, shards
    for shard, count in added.items():
        store._shards = store._shards | {shard: store._shards.get(shard, 0) + count}
    return time


async def _tell_an_earlier_instant(store: MemoryStore, right: Right, first: str, last: str, limit: int) -> Any:
    time = store._time
    await asyncio.sleep(0)
    return time, (await right(first, last, limit))[1]


async def _write_each_receipt_alone(store: MemoryStore, right: Right, commit: Commit) -> Any:
    for receipt in commit.receipts:
        await right(Commit((receipt,), ()))
    return await right(Commit((), commit.adds))


async def _apply_the_first_though_refused(store: MemoryStore, right: Right, commit: Commit) -> Any:
    try:
        return await right(commit)
    except RefusedError:
        await right(replace(commit, adds=commit.adds[:1]))
        raise


async def _apply_others_of_a_full_shard(store: MemoryStore, right: Right, commit: Commit) -> Any:
    for add in commit.adds[1:]:
        await right(Commit((), (add,)))
    return await right(Commit(commit.receipts, commit.adds[:1]))


async def _tear(store: MemoryStore, _: MemorySnapshot, counters: Sequence[str], receipts: Collection[str]) -> Any:
    """Each counter is as it is when it is its turn."""
    totals: dict[str, Total] = {}
    applied: Collection[str] = ()
    for counter in counters:
        async with MemoryStore.snapshot(store) as now:
            some, applied = await now.read([counter], receipts)
        totals |= some
        await asyncio.sleep(0)
    return totals, applied


async def _receipts_of_now(
    store: MemoryStore, then: MemorySnapshot, counters: Sequence[str], receipts: Collection[str]
) -> Any:
    totals, _ = await MemorySnapshot.read(then, counters, ())
    async with MemoryStore.snapshot(store) as now:
        return totals, (await now.read((), receipts))[1]


def _the_one_before(store: MemoryStore, now: MemorySnapshot) -> MemorySnapshot:
    """Return the one before every other time."""
    last: MemorySnapshot | None = store.__dict__.pop("last", None)
    if last is None:
        store.__dict__["last"] = now
    return last or now


def _names(store: MemoryStore, after: str, until: str | None) -> list[str]:
    return sorted(name for name in store._configs if name > after and (until is None or name <= until))


def _count(found: Callable[[Any, str], int]) -> Fault:
    async def count(store: MemoryStore, right: Right, prefix: str, most: int) -> Any:
        return min(found(store, prefix), most)

    return calls(count=count)


async def _sweep_by_keys(store: MemoryStore, right: Right, now: StoreMillis, limit: int) -> Any:
    """Once a receipt has expired, delete the one that comes after it, too."""
    seen: set[str] = store.__dict__.setdefault("seen", set())
    seen |= {key for key, one in store._receipts.items() if 0 < one.expires < now}
    gone = len(store._receipts.keys() & seen)
    store._receipts = {key: one for key, one in store._receipts.items() if key not in seen}
    deleted = await right(now, limit - gone)
    return gone + deleted


STORES: Final[dict[str, Fault]] = {
    "finds receipts of other jobs": gives(
        "receipts_from",
        lambda store, _, prefix, after, limit: [store._receipts[key] for key in sorted(store._receipts)],
    ),
    "finds the last receipt again": gives(
        "receipts_from",
        lambda store, _, prefix, after, limit: [
            store._receipts[key] for key in sorted(store._receipts) if key.startswith(prefix) and key >= after
        ][:limit],
    ),
    "applies without receipts": commits(lambda _, commit: Commit((), commit.adds)),
    "applies half of a commit": calls(apply=_apply_in_halves),
    "takes dead for applied": each("receipts", lambda _, one: one._replace(state="applied")),
    "overwrites receipts": before(
        "apply",
        "_receipts",
        lambda store, commit: {
            key: one for key, one in store._receipts.items() if key not in {new.key for new in commit.receipts}
        },
    ),
    "loses updates": calls(apply=_lose_updates),
    "lowers shards": calls(raise_shards=_lower_shards),
    "hides new shards": each("adds", lambda _, add: add._replace(num_shards=1)),
    "fills shards": calls(apply=_fill_shards),
    "stands still": gives("receipts", lambda _, receipts, keys: Receipts(BEGINNING, receipts.found)),
    "tells an earlier instant": calls(applied=_tell_an_earlier_instant),
    "finds neighbours": calls(applied=lambda _, right, first, last, limit: right(first, last + "~", limit)),
    "finds no envelopes": gives("applied", lambda _, found, *__: (found[0], ())),
    "tears its snapshots": reading(_tear),
    "sorts backwards": gives("names", lambda _, names, *__: names[::-1]),
    "sweeps all": calls(sweep=lambda _, right, now, limit: right(StoreMillis(2**60), limit)),
    "leaves receipts of a conflict": calls(apply=_write_each_receipt_alone),
    "lowers shards on apply": after(
        "apply",
        "_configs",
        lambda store, commit: store._configs | {add.counter: add.num_shards for add in commit.adds},
    ),
    "makes no config for zero": commits(
        lambda _, commit: replace(commit, adds=tuple(add for add in commit.adds if add.delta))
    ),
    "wraps around": each("adds", lambda _, add: add._replace(delta=_int64(add.delta))),
    "applies what it refuses": calls(apply=_apply_the_first_though_refused),
    "counts a full shard of others": calls(apply=_apply_others_of_a_full_shard),
    "time of the next commit": gives("apply", lambda _, time, commit: Instant(time + 1)),
    "time of the commit before": gives("apply", lambda _, time, commit: Instant(time - 1)),
    "looks back": reads(_the_one_before),
    "asks for receipts later": reading(_receipts_of_now),
    "in milliseconds": reads(lambda _, then: with_parts(then, as_of=lambda then: WallSeconds(then.as_of * 1_000))),
    "sorts by case": gives(
        "names",
        lambda store, _, prefix, after, limit, until: sorted(
            (name for name in _names(store, after, until) if name.startswith(prefix)), key=_utf16
        )[:limit],
    ),
    "counts what comes behind": _count(lambda store, prefix: sum(name >= prefix for name in store._configs)),
    "counts in utf-16": _count(
        lambda store, prefix: sum(
            _utf16(prefix) <= _utf16(name) <= _utf16(prefix + "\uffff") for name in store._configs
        )
    ),
    "counts without end": calls(count=lambda _, right, prefix, most: right(prefix, max(most, 10**6))),
    "counts what was there": _count(
        lambda store, prefix: len({name for name, _ in store._written if name.startswith(prefix)})
    ),
    "names the one it comes after": gives(
        "names",
        lambda store, names, prefix, after, limit, _: [
            *([after] if after in store._configs and after.startswith(prefix) else []),
            *names,
        ][:limit],
    ),
    "names by comparing": gives(
        "names",
        lambda store, _, prefix, after, limit, until: [name for name in _names(store, after, until) if name >= prefix][
            :limit
        ],
    ),
    "names without end": calls(names=lambda _, right, prefix, after, limit, until: right(prefix, after, limit)),
    "names before the end": gives(
        "names", lambda _, names, prefix, after, limit, until: [name for name in names if name != until]
    ),
    "names what the end begins with": calls(
        names=lambda _, right, prefix, after, limit, until: right(prefix, after, limit, until and f"{until}~")
    ),
    "names too many": calls(names=lambda _, right, prefix, after, limit, until: right(prefix, after, limit + 1, until)),
    "sweeps without limit": calls(sweep=lambda _, right, now, limit: right(now, 10**6)),
    "sweeps by keys": calls(sweep=_sweep_by_keys),
    "sweeps a tick early": calls(sweep=lambda _, right, now, limit: right(StoreMillis(now + 1), limit)),
    "makes up shards": gives(
        "shards", lambda _, found, counters: {counter: found.get(counter, 1) for counter in counters}
    ),
}


async def _revive_before(store: MemoryStore, right: Right, commit: Commit) -> Any:
    await right(Commit((), (), commit.revived))
    return await right(replace(commit, revived=()))


async def _revive_afterwards(store: MemoryStore, right: Right, commit: Commit) -> Any:
    time = await right(replace(commit, revived=()))
    return await right(Commit((), (), commit.revived)) if commit.revived else time


async def _look_before_it_revives(store: MemoryStore, right: Right, commit: Commit) -> Any:
    """And believe what was seen a moment ago."""
    dead = {key for key in _revived(commit) if key in store._receipts and store._receipts[key].state == DEAD}
    await asyncio.sleep(0)
    store._receipts = store._receipts | {key: store._receipts[key]._replace(state=DEAD) for key in dead}
    return await right(commit)


def _revived(commit: Commit) -> set[str]:
    return {one.key for one in commit.revived}


REVIVALS: Final[dict[str, Fault]] = {
    "revives what is not dead": commits(
        lambda store, commit: replace(
            commit,
            revived=tuple(one for one in commit.revived if store._receipts.get(one.key, one).state != "applied"),
        )
    ),
    "revives by upsert": before(
        "apply",
        "_receipts",
        lambda store, commit: {one.key: one._replace(state=DEAD) for one in commit.revived} | store._receipts,
    ),
    "revives outside the commit": calls(apply=_revive_before),
    "revives after the commit": calls(apply=_revive_afterwards),
    "forgets to revive": commits(lambda _, commit: replace(commit, revived=())),
    "revives all": after(
        "apply",
        "_receipts",
        lambda store, commit: {
            key: one._replace(state="applied") if commit.revived else one for key, one in store._receipts.items()
        },
    ),
    "revives for shorter": after(
        "apply", "_receipts", lambda store, commit: store._receipts | {one.key: one for one in commit.revived}
    ),
    "revives what is to stay dead": each("revived", lambda _, one: one._replace(state="applied")),
    "revives for as long as before": commits(
        lambda store, commit: replace(
            commit,
            revived=tuple(
                one._replace(expires=store._receipts[one.key].expires)
                for one in commit.revived
                if one.key in store._receipts
            ),
        )
    ),
    "looks before it revives": calls(apply=_look_before_it_revives),
    "revives what is late": commits(
        lambda _, commit: replace(commit, bounds=Bounds()) if commit.revived else commit,
    ),
}


async def _as_it_is_now(store: MemoryStore, part: str) -> AsyncIterator[Any]:
    async with MemoryStore.audit_data(store) as now:
        async for page in getattr(now, part)():
            yield page


def _tear_data(store: MemoryStore, data: MemoryAuditData) -> None:
    """Each kind is as it is when it is its turn."""
    for part in ("receipts", "configs", "shards", "buckets"):
        data.__dict__[part] = partial(_as_it_is_now, store, part)


@asynccontextmanager
async def _snapshot_of_before(store: MemoryStore, right: Right) -> AsyncIterator[MemoryAuditData]:
    async with right() as data, MemoryStore(store._clock).snapshot() as data.snapshot:
        yield data


def _changed(part: str, change: Callable[[Any, Any], Any]) -> Fault:
    return shows(lambda store, data: setattr(data, part, change(store, getattr(data, part))))


def _configs_with_shards(store: MemoryStore, data: MemoryAuditData) -> None:
    there = {shard.counter for shard in data._shards}
    data._configs = [one for one in data._configs if one.counter in there]


def _buckets_of(change: Callable[[Mapping[Any, Any]], Mapping[Any, Any]]) -> Fault:
    return _changed("_buckets", lambda _, buckets: MemoryBuckets(dict(change(buckets.shards)), buckets.dates))


AUDIT_DATA: Final[dict[str, Fault]] = {
    "forgets notes": each("receipts", lambda _, one: one._replace(note=b"")),
    "cuts long notes": each("receipts", lambda _, one: one._replace(note=one.note[:60_000])),
    "carries nothing": leaves("sweep", "_carried"),
    "carries in int64": after(
        "sweep", "_carried", lambda store, *_: {name: _int64(held) for name, held in store._carried.items()}
    ),
    "shows one page": _changed("_receipts", lambda _, receipts: receipts[:500]),
    "shows some twice": _changed("_receipts", lambda _, receipts: [*receipts[:500], *receipts[499:]]),
    "shows receipts in any order": _changed("_receipts", lambda _, receipts: receipts[::-1]),
    "hides configs without shards": shows(_configs_with_shards),
    "hides high shards": _changed("_shards", lambda _, shards: [one for one in shards if one.number < 5]),
    "dates receipts alike": _changed(
        "_receipts", lambda store, receipts: [one._replace(time=store._time) for one in receipts]
    ),
    "hides some buckets": _buckets_of(lambda shards: dict(islice(shards.items(), 100))),
    "shows first shards of buckets": _buckets_of(
        lambda shards: {key: held for key, held in shards.items() if key[1] == 0}
    ),
    "forgets what was followed": _changed("_buckets", lambda _, buckets: MemoryBuckets(buckets.shards)),
    "tears its books": shows(_tear_data),
    "adds another snapshot to its books": calls(audit_data=_snapshot_of_before),
}


async def _without_ids(_: object, then: MemorySnapshot, counters: Sequence[str], receipts: Collection[str]) -> Any:
    totals, settled = await MemorySnapshot.read(then, counters, receipts)
    return totals, {*settled} & {*receipts}


def _bare(receipt: Receipt) -> Receipt:
    return receipt._replace(counters=(), body=b"")


async def _mark_in_a_commit_of_its_own(store: MemoryStore, right: Right, commit: Commit) -> Any:
    """Between the two a snapshot finds nothing."""
    time = await right(parts_changed(commit, "receipts", _bare))
    if any(one.body for one in commit.receipts):
        store._bodies = store._bodies | {one.key: one for one in commit.receipts if one.body}
    return time


async def _let_the_dead_expire(store: MemoryStore, right: Right, now: StoreMillis, limit: int) -> Any:
    store._receipts = {key: one for key, one in store._receipts.items() if one.expires}
    store._bodies = {}
    return await right(now, limit)


async def _keep_the_body(store: MemoryStore, right: Right, commit: Commit) -> Any:
    bodies = store._bodies
    time = await right(commit)
    store._bodies = bodies | store._bodies
    return time


async def _the_dead_from(store: MemoryStore, right: Right, after: str, limit: int) -> Any:
    return [store._bodies[key] for key in sorted(store._bodies) if key >= after][:limit]


DEAD_RECEIPTS: Final[dict[str, Fault]] = {
    "finds no dead": reads(lambda _, then: with_parts(then, dead=lambda _: {})),
    "finds the dead of now": reads_late("_receipts"),
    "asks for no ids": reading(_without_ids),
    "marks in a commit of its own": calls(apply=_mark_in_a_commit_of_its_own),
    "lets the dead expire": calls(sweep=_let_the_dead_expire),
    "keeps the body of what is replayed": calls(apply=_keep_the_body),
    "finds only the first counter": after(
        "apply",
        "_bodies",
        lambda store, _: {key: one._replace(counters=one.counters[:1]) for key, one in store._bodies.items()},
    ),
    "loses a body that comes later": each("revived", lambda _, one: _bare(one) if one.state == DEAD else one),
    "buries what is applied": before(
        "apply",
        "_receipts",
        lambda store, commit: {
            key: one
            for key, one in store._receipts.items()
            if key not in {receipt.key for receipt in commit.receipts if receipt.body}
        },
    ),
    "hands out one page": gives("dead", lambda _, found, after, limit: () if after else found),
    "hands out the last again": calls(dead=_the_dead_from),
    "counts a burial as a set": after(
        "apply",
        "_guards",
        lambda store, commit: new_versions(store, [name for one in commit.receipts for name in one.counters]),
    ),
    "names no counter without a config": gives(
        "dead_names", lambda store, names, *_: [name for name in names if name in store._configs]
    ),
}


def _with(find: Callable[[str, str], bool]) -> Fault:
    """It compares names and parts otherwise."""
    return gives(
        "names_with",
        lambda store, _, part, prefix, after, limit: [
            name for name in _names(store, after, None) if name.startswith(prefix) and find(name, part)
        ][:limit],
    )


SEARCHES: Final[dict[str, Fault]] = {
    "finds beginnings": _with(lambda name, part: name.startswith(part)),
    "finds whatever the case": _with(lambda name, part: part.lower() in name.lower()),
    "finds by a pattern": _with(lambda name, part: part in name or part in "%_"),
    "finds under all prefixes": calls(
        names_with=lambda _, right, part, __, after, limit: right(part, "", after, limit)
    ),
    "finds from the beginning": calls(
        names_with=lambda _, right, part, prefix, __, limit: right(part, prefix, "", limit)
    ),
    "finds without end": calls(names_with=lambda _, right, part, prefix, after, __: right(part, prefix, after, 10**6)),
}

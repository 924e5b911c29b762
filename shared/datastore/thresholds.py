"""Which thresholds were reached, in Datastore. docs/adr/0037-feed.md says why none is missed.

A commit there knows no total. So it writes a row of how much it added, beside the shards. A flusher reads the total and
all rows at one instant T, and counts back from there, in the order of the commits:

    commit at 5      adds 30 to shard-a-0, and writes a row: 30
    commit at 6      adds -20 to shard-a-1, and writes a row: -20
    look at T = 7    the total is 990, and both rows exist: so it was 980 before, 1,010 at 5, and 990 at 6
    at 1,000         is kept as reached at 5, in the commit that deletes the row of 5, and then told
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import uuid4

from shared.datastore.client import DELETES_AT_ONCE, DatastoreClient, micros, millis
from shared.datastore.keys import KEY, LAST, DatastorePlace, Key, name_of, query_of, unindexed, within
from shared.model.buckets import Instant, StoreMillis, WallSeconds, rule_of
from shared.model.feed import Levels, Reach, ThresholdRule, Told, bounded
from shared.model.words import Commit
from shared.ports.store import Snapshots

FOLLOWED: Final = 720_000
"""Milliseconds after a look in which a commit may follow the rules that it saw: a minute in which a process believes
them, the ten minutes in which a transaction surely ends, and a minute.
"""
ROWS: Final = 1_000
"""Rows in one look, or all of one counter."""
_LEVELS_AT_ONCE: Final = DELETES_AT_ONCE // 2
"""Entities of what was reached in one commit, but those of one row are never apart: a list has 100 thresholds."""
_BEHIND: Final = "\x1f"
"""Stands behind the counter in a key. No name has it, so the rows of a counter are neighbours."""
_LAST: Final = "~"
"""Sorts behind all that stands there: the next page must have none of the rows that this counter gets meanwhile."""
_ROW: Final = "row"


# What a commit writes.


def generation(set_by: str) -> int:
    """The generation that begins with a set of this receipt; 0 if there was none. A guard may be written for another
    reason, so its version does not say.
    """
    return int.from_bytes(sha256(set_by.encode()).digest()[:6]) if set_by else 0


def note(request: Any, place: DatastorePlace, commit: Commit, told: Told, set_before: str) -> None:
    """Add to the request how much the commit adds to each counter that has thresholds, and the generations before and
    after a set. `set_before`: the receipt of the set before this one.
    """
    prefixes = tuple(rule.prefix for rule in told.thresholds)
    if not prefixes:
        return
    changed = commit.guard[0] if commit.guard else None
    deltas = {} if changed is None else {changed: 0}
    for add in commit.adds:
        deltas[add.counter] = deltas.get(add.counter, 0) + add.delta
    for counter, delta in deltas.items():
        if counter.startswith(prefixes) and (delta or counter == changed):
            generations = [generation(set_before), generation(commit.receipts[0].key)] if counter == changed else []
            key = place.key(place.kinds.added, f"{counter}{_BEHIND}{uuid4().hex}")
            _insert(request, place, key, [delta, *generations])


def _insert(request: Any, place: DatastorePlace, key: Key, row: Sequence[int]) -> None:
    entity = request.mutations.add().upsert
    entity.CopyFrom(place.entity(key))
    unindexed(entity, _ROW).string_value = json.dumps(row)  # numbers may be beyond 64 bits


# Since when all commits write rows.


Covered = Mapping[str, int]
"""For each prefix, since when the rules in the store have had its thresholds, in milliseconds; 0: not known yet."""


def covered(before: Covered, rules: Collection[ThresholdRule]) -> Covered:
    """Since when prefixes are covered, once these rules replace earlier ones."""
    return {
        rule.prefix: min((one for prefix, one in before.items() if one and rule.prefix.startswith(prefix)), default=0)
        for rule in rules
    }


def holds(counter: str, time: Instant, since: Covered) -> bool:
    """Whether all commits to this counter wrote rows at that time, and since."""
    return any(one and millis(time) >= one + FOLLOWED for prefix, one in since.items() if counter.startswith(prefix))


# Counting back.


class _Added(NamedTuple):
    time: Instant
    version: int
    key: Key
    delta: int
    generations: tuple[int, ...]
    """Before and after it, if it is a set."""


class Step(NamedTuple):
    """A counter before and after one commit."""

    before: int
    after: int
    generation: int | None
    """None: the generation of the guard."""


def steps(total: int, rows: Sequence[tuple[int, tuple[int, ...]]]) -> list[Step]:
    """What each row changed, in their order. `total`: behind all of them. A set tells the generation of the rows before
    it, too, up to the set before.
    """
    found: list[Step] = []
    current: int | None = None
    for delta, generations in reversed(rows):
        now = generations[1] if generations else current
        found.append(Step(total - delta, total, now))
        total -= delta
        current = generations[0] if generations else current
    return found[::-1]


class Judge:
    """Turns rows into what was reached. It does no harm if several do so at once: each deletes the oldest rows of a
    counter first, so those that are left always lead to its total.
    """

    def __init__(self, client: DatastoreClient, store: Snapshots) -> None:
        self._client = client
        self._place = client.place
        self._store = store
        self._after = ""

    async def judge(self, told: Told, since: Covered, until: StoreMillis) -> bool:
        """Judge a page of rows by these rules, unless it is `until`: from then on, another process may write others.
        Returns whether there may be more.
        """
        async with self._store.snapshot() as snapshot:
            if millis(snapshot.time) >= until:
                return False
            rows = await self._rows(snapshot.time)
            totals, _ = await snapshot.read([*rows], ())
            reached: list[tuple[_Added, list[Reach]]] = []
            for counter, added in rows.items():
                if totals[counter].flaw:
                    continue  # another application has to correct it; until then it stays
                added.sort()
                by = steps(totals[counter].value, [(one.delta, one.generations) for one in added])
                rule = rule_of(told.thresholds, counter)
                reached += [
                    (one, _reaches(counter, one, step, rule if holds(counter, one.time, since) else None))
                    for one, step in zip(added, by, strict=True)
                ]
            unknown = {one.counter for _, some in reached for one in some if one.generation < 0}
            keys = map(self._place.guard, unknown)
            found = (await self._client.look_up(keys, read_time=snapshot.time)).entities if unknown else ()
        guards = {name_of(one.entity.key)[1]: one.entity.properties[LAST].string_value for one in found}
        await self._keep(reached, guards)
        return bool(self._after)

    async def _rows(self, time: Instant) -> dict[str, list[_Added]]:
        """The next rows at that time: whole counters, since what is left out would be taken for earlier."""
        query = within(query_of(self._place.kinds.added, ROWS, order=KEY), self._place, "", self._after)
        rows: dict[str, list[_Added]] = {}
        number, self._after, counter = 0, "", ""
        async for page in self._client.pages(query, read_time=time):
            for one in page:
                before, counter = counter, name_of(one.entity.key)[1].rpartition(_BEHIND)[0]
                if number >= ROWS and counter not in rows:
                    self._after = before + _BEHIND + _LAST
                    return rows
                delta, *generations = json.loads(one.entity.properties[_ROW].string_value)
                number += 1
                row = _Added(micros(one.update_time), one.version, one.entity.key, delta, (*generations,))
                rows.setdefault(counter, []).append(row)
        return rows

    async def _keep(self, reached: Sequence[tuple[_Added, list[Reach]]], guards: Mapping[str, str]) -> None:
        request, levels = self._client.commit_request(), 0
        for one, some in reached:
            for reach in some:
                its = generation(guards.get(reach.counter, "")) if reach.generation < 0 else reach.generation
                keep(request, self._place, reach._replace(generation=its))
            request.mutations.add().delete.CopyFrom(one.key)
            levels += len(some)
            if len(request.mutations) >= DELETES_AT_ONCE or levels >= _LEVELS_AT_ONCE:
                await self._client.commit(request)
                request, levels = self._client.commit_request(), 0
        if request.mutations:
            await self._client.commit(request)


def _reaches(counter: str, one: _Added, step: Step, rule: ThresholdRule | None) -> list[Reach]:
    its = -1 if step.generation is None else step.generation
    value, wall = bounded(step.after), WallSeconds(one.time / 1_000_000)
    row = name_of(one.key)[1]
    return [
        Reach(f"{row}{_BEHIND}{levels.first}", counter, its, levels, value, one.time, wall)
        for levels in (rule.reached(bounded(step.before), value) if rule is not None else ())
    ]


# What was reached and not reported.


def keep(request: Any, place: DatastorePlace, one: Reach) -> None:
    """Add to the request what is still to be reported."""
    _insert(
        request, place, place.key(place.kinds.reached, str(one.row)), [one.generation, *one.levels, one.value, one.at]
    )


def kept(results: Sequence[Any]) -> Iterator[Reach]:
    for one in results:
        row = name_of(one.entity.key)[1]
        its, first, last, step, value, at = json.loads(one.entity.properties[_ROW].string_value)
        levels = Levels(first, last, step)
        yield Reach(row, row.split(_BEHIND)[0], its, levels, value, Instant(at), WallSeconds(at / 1_000_000))

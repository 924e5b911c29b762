"""The largest counters by the index of shards: what all readings say, whatever the shards hold and however the server
orders equal counts.
"""

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from google.cloud.datastore_v1.types import entity as _entity

from shared.datastore import ranking
from shared.datastore.keys import COUNT, KEY, NUM_SHARDS, DatastorePlace, Operator
from shared.datastore.ranking import largest
from shared.model.errors import UnrankedError
from shared.model.words import Entry, Guard, Total, View

PLACE = DatastorePlace("p")
NAMES = ["p:a", "p:a b", "p:a-", "p:a-0", "p:a-1", "p:a!", "p:b", "p:é", "p", "q:a", "q:b"]
Shards = Mapping[int, int]


class Index:
    """The queries of a ranking, on counters that are given as their shards; the reads are counted."""

    def __init__(self, counters: Mapping[str, tuple[Shards, bool]], *, descending: bool) -> None:
        self.place, self.client, self.time = PLACE, self, 0
        self.counters = counters
        self._descending = descending
        self.reads = 0
        self.looked_at = 0

    def _entities(self, kind: str) -> list[Any]:
        made = []
        for name, (shards, _) in self.counters.items():
            if kind == PLACE.kinds.config:
                made.append((PLACE.config(name), NUM_SHARDS, number_of(shards)))
            else:
                made += [(PLACE.shard(name, index), COUNT, held) for index, held in shards.items()]
        entities = []
        for key, name, value in made:
            entity = _entity.Entity.pb()(key=key)
            entity.properties[name].integer_value = value
            entities.append(entity)
        return entities

    def _found(self, query: Any) -> list[Any]:
        def fits(entity: Any) -> bool:
            for one in query.filter.composite_filter.filters:
                its, name = one.property_filter, one.property_filter.property.name
                value = its.value.key_value.path[-1].name if name == KEY else its.value.integer_value
                held = entity.key.path[-1].name if name == KEY else entity.properties[name].integer_value
                if not {
                    Operator.EQUAL: held == value,
                    Operator.GREATER_THAN: held > value,
                    Operator.GREATER_THAN_OR_EQUAL: held >= value,
                    Operator.LESS_THAN_OR_EQUAL: held <= value,
                }[its.op]:
                    return False
            return True

        found = [entity for entity in self._entities(query.kind[0].name) if fits(entity)]
        order = query.order[0].property.name
        found.sort(key=lambda one: one.key.path[-1].name, reverse=self._descending and order != KEY)
        if order != KEY:
            found.sort(key=lambda one: one.properties[order].integer_value, reverse=True)
        return [SimpleNamespace(entity=entity) for entity in found]

    async def pages(self, query: Any, *, read_time: int) -> AsyncIterator[Sequence[Any]]:
        found = self._found(query)
        while page := found[: query.limit.value]:
            found = found[query.limit.value :]
            self.looked_at += len(page)
            yield page

    async def query(self, query: Any, *, read_time: int) -> Sequence[Any]:
        return self._found(query)[: query.limit.value]

    async def read(self, names: Sequence[str], _: object) -> tuple[Mapping[str, Total], Sequence[str]]:
        self.reads += len(names)
        return {name: self.total(name) for name in names}, ()

    def total(self, name: str) -> Total:
        shards, deleted = self.counters.get(name, ({}, False))
        number = number_of(shards) if name in self.counters else 0
        return Total(sum(shards.values()), number, Guard(deleted=deleted))


def number_of(shards: Shards) -> int:
    return max(shards, default=0) + 1


def expected(index: Index, prefix: str, limit: int, pending: Mapping[str, int]) -> list[str]:
    names = {name for name in (*index.counters, *pending) if name.startswith(prefix)}
    totals = {name: index.total(name) for name in names}
    values = {name: total.value + pending.get(name, 0) for name, total in totals.items()}
    there = [name for name, value in values.items() if value or not totals[name].guard.deleted]
    return sorted(sorted(there, key=lambda name: (-values[name], name))[:limit])


def drawn(chance: random.Random) -> dict[str, tuple[Shards, bool]]:
    """Counters whose totals are often equal."""
    kind = chance.choice(["one", "one", "several", "few are positive"])
    most = chance.choice([1, 2, 3, 20])

    def shards() -> Shards:
        least = -most if kind == "few are positive" and chance.random() < 0.9 else 1
        if kind != "one" and chance.random() < 0.3:
            return {number: chance.randint(least, most) for number in range(4) if chance.random() < 0.7}
        return {0: chance.randint(least, most)} if chance.random() < 0.95 else {}

    deleted = 0.2 if kind == "few are positive" else 0.0
    return {name: (shards(), chance.random() < deleted) for name in NAMES if chance.random() < 0.8}


@pytest.mark.parametrize("seed", range(4))
async def test_none_is_missed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, refused = random.Random(seed), 0
    for case in range(500):
        index = Index(drawn(chance), descending=chance.random() < 0.5)
        prefix, limit = chance.choice(["p:", "p:", "p:a", ""]), chance.randint(1, 6)
        waits = {name: chance.randint(-9, 9) for name in chance.sample(NAMES, chance.choice([0, 0, 1, 3]))}
        others = {name: chance.choice([-1, 0, 3]) for name in waits}  # are stored, or not published
        views = {name: View((Entry("k", waits[name]), Entry("l", others[name], confirmed=False))) for name in waits}
        for name, sizes in (("PAGE", (1, 3)), ("MOST_SCANNED", (3, 99)), ("MOST_WALKED", (3, 99, 99))):
            monkeypatch.setattr(ranking, name, chance.choice(sizes))
        monkeypatch.setattr(ranking, "MOST_SEVERAL", chance.choice([2, 99]))
        try:
            found = await largest(index, prefix, limit, views, ())  # type: ignore[arg-type] # in place of a server
        except UnrankedError:
            refused += 1
            assert len([name for name in index.counters if name.startswith(prefix)]) > ranking.MOST_WALKED
            continue
        for pending in (waits, others, dict.fromkeys(waits, 0), {name: waits[name] + others[name] for name in waits}):
            assert {*expected(index, prefix, limit, pending)} <= {*found}, f"case {case}"
        assert waits or sorted(found) == expected(index, prefix, limit, {}), f"case {case}"
    assert 5 < refused < 150


async def test_it_reads_few_counters() -> None:
    """A long tail of equal ones, others between, and a hundred with several shards: most of it is only looked at."""
    counters: dict[str, tuple[Shards, bool]] = {f"p:{n:04}": ({0: max(1_000 - 2 * n, 1)}, False) for n in range(1_000)}
    counters |= {f"q:{n:04}": ({0: 1_000 - n}, False) for n in range(1_000)}
    counters |= {f"p:s{n}": (dict.fromkeys(range(8), 10), False) for n in range(100)}
    for limit, reads, looked_at in ((10, 20, 2_000), (100, 220, 2_000), (700, 1_400, 4_000)):
        index = Index(counters, descending=True)
        assert sorted(await largest(index, "p:", limit, {}, ())) == expected(index, "p:", limit, {})  # type: ignore[arg-type]
        assert index.reads <= reads
        assert index.looked_at <= looked_at


async def test_what_is_pending_of_others_is_not_read() -> None:
    """In a busy service, that is nearly all of them."""
    index = Index({f"p:{n:04}": ({0: 2 * n}, False) for n in range(1_000)}, descending=True)
    views = {name: View((Entry("k", -1), Entry("l", 5))) for name in (*index.counters, "p:new")}
    found = await largest(index, "p:", 10, views, ())  # type: ignore[arg-type]
    for waits in (-1, 0, 4, 5):
        assert {*expected(index, "p:", 10, dict.fromkeys(views, waits))} <= {*found}
    assert index.reads < 40


async def test_it_refuses_what_would_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "MOST_SCANNED", 50)
    monkeypatch.setattr(ranking, "MOST_WALKED", 9)
    others: dict[str, tuple[Shards, bool]] = {f"q:{n}": ({0: 100}, False) for n in range(200)}
    few: dict[str, tuple[Shards, bool]] = {f"p:{n}": ({0: n - 3}, False) for n in range(9)}
    assert {*await largest(Index({**others, **few}, descending=True), "p:", 2, {}, ())} == {"p:8", "p:7"}  # type: ignore[arg-type]
    with pytest.raises(UnrankedError):
        await largest(Index({**others, **few, "p:9": ({0: 9}, False)}, descending=True), "p:", 2, {}, ())  # type: ignore[arg-type]

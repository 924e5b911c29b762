"""New names are admitted while there is room, and known ones always."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from ingest.accept import new_names
from ingest.accept.new_names import BELIEVED, COUNT_AGAIN, HELD, PAUSE, NewNames, Trial
from shared.config.lists import NameLimit
from shared.memory import ProcessOverlay
from shared.model.errors import OverloadedError, ShareError, TransientError
from tests.contracts.store import commit
from tests.world.manual_clock import ManualClock
from tests.world.memory.store import MemoryStore

ALL = NameLimit("", 5)
PAGES = NameLimit("page:", 2)


class CountedStore(MemoryStore):
    """A store that counts how often it is asked, and that may be away."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(self.clock)
        self.away = False
        self.counts = 0
        self.asked: list[str] = []

    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        await asyncio.sleep(0)
        if self.away:
            raise TransientError("away")
        self.asked += counters
        return await super().shards(counters)

    async def count(self, prefix: str, most: int) -> int:
        await asyncio.sleep(0)
        if self.away:
            raise TransientError("away")
        self.counts += 1
        return await super().count(prefix, most)

    async def fill(self, *names: str) -> None:
        await self.apply(commit(*((name, 1) for name in names)))


@pytest.fixture
def store() -> CountedStore:
    return CountedStore()


def limited(store: CountedStore, *limits: NameLimit) -> NewNames:
    return NewNames(store, ProcessOverlay(store.clock), limits or (ALL,), store.clock)


async def test_of_many_requests_at_once_no_more_are_admitted_than_there_is_room(store: CountedStore) -> None:
    names = limited(store)
    found = await asyncio.gather(*(names.admit([f"a{number % 50}"]) for number in range(200)))
    refused = {name for one in found for name in one}
    assert len(refused) == 45
    assert store.counts == 1
    assert sum(not one for one in found) == 20


async def test_a_known_name_costs_no_question(store: CountedStore) -> None:
    await store.fill("old")
    names = limited(store)
    assert not names.knows("old")
    await names.check("old")
    await names.check("new")
    assert names.knows("old")
    assert names.knows("new")
    asked = [*store.asked]
    for _ in range(10):
        assert await names.admit(["old", "new"]) == {}
    assert store.asked == asked
    assert store.counts == 1
    store.clock.turn(BELIEVED)
    assert not names.knows("old")
    assert [*await limited(store, NameLimit("", 0)).admit(["old", "new"])] == ["new"], "where none may be made"


async def test_what_was_flushed_is_counted_once(store: CountedStore) -> None:
    """Names that were admitted wait in the count of this process until the store has them, and no longer."""
    names = limited(store)
    assert await names.admit(["a", "b", "c"]) == {}
    await store.fill("a", "b")
    store.clock.turn(COUNT_AGAIN)
    assert [*await names.admit(["d", "e", "f"])] == ["f"]
    await store.fill("c", "d")
    store.clock.turn(COUNT_AGAIN)
    assert [*await names.admit(["e", "g"])] == ["g"]


async def test_names_that_other_processes_make_are_seen_with_the_next_count(store: CountedStore) -> None:
    names = limited(store)
    await names.check("mine")
    await store.fill("1", "2", "3", "4", "5")
    await names.check("too many")
    store.clock.turn(COUNT_AGAIN)
    with pytest.raises(ShareError):
        await names.check("mine, too")
    assert store.counts == 2


async def test_together_all_are_admitted_or_none(store: CountedStore) -> None:
    await store.fill("old")
    names = limited(store, PAGES)
    refused = await names.admit_together(["old", "page:1", "page:2", "page:3"], Trial(), "All or none")
    assert [*refused] == ["old", "page:1", "page:2", "page:3"]
    assert refused["old"].endswith(". All or none")
    assert await names.admit_together(["page:3", "page:4"], Trial(), "") == {}
    assert not names.knows("page:1")
    assert await names.admit_together(["old", "page:3"], Trial(), "") == {}


async def test_while_the_store_is_away_names_are_admitted_up_to_the_last_count(store: CountedStore) -> None:
    await store.fill("1", "2", "3")
    names = limited(store)
    await names.check("1")
    await names.check("new1")
    store.away = True
    store.clock.turn(COUNT_AGAIN)
    await names.check("2")  # it is there, but nobody knows
    for _ in range(2):
        with pytest.raises(OverloadedError, match="the store does not say whether") as refused:
            await names.check("3")
        assert not isinstance(refused.value, ShareError)
    await names.check("1")
    store.away = False
    store.clock.turn(PAUSE)
    await names.check("3")
    await names.check("new2")  # the room that "2" took is free again
    with pytest.raises(ShareError):
        await names.check("new3")


async def test_without_any_count_a_new_name_waits_for_one(store: CountedStore) -> None:
    names = limited(store)
    store.away = True
    with pytest.raises(OverloadedError) as refused:
        await names.check("a")
    assert not isinstance(refused.value, ShareError)
    store.away = False
    store.clock.turn(PAUSE)
    await names.check("a")


async def test_a_store_that_does_not_answer_is_away(store: CountedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_names, "ANSWER_WITHIN", 0.01)
    names = limited(store)
    await names.check("a")
    monkeypatch.setattr(store, "shards", lambda _: asyncio.sleep(60, {}))
    store.clock.turn(COUNT_AGAIN)
    await names.check("b")


async def test_what_never_comes_gives_its_room_back(store: CountedStore) -> None:
    names = limited(store, PAGES)
    await names.admit(["page:1", "page:2"])
    store.clock.turn(HELD)
    assert await names.admit(["page:3"])
    store.clock.turn(COUNT_AGAIN)
    assert await names.admit(["page:3"]) == {}


async def test_many_names_are_asked_for_in_pages_and_remembered_up_to_a_limit(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_names, "MOST_KNOWN", 100)
    monkeypatch.setattr(new_names, "PAGE", 10)
    monkeypatch.setattr(new_names, "MOST_PAGES", 3)
    names = limited(store, NameLimit("", 250))
    many = [f"a{number}" for number in range(300)]
    assert len(await names.admit(many)) == 50
    assert len(names._known) <= 100
    await store.fill(*many[:200])
    for _ in range(8):
        store.clock.turn(COUNT_AGAIN)
        await names.admit(["b"])
    assert len(names._admitted) == 50

"""New names are limited by what Datastore counts."""

import asyncio

import pytest

from ingest.accept import new_names
from ingest.accept.new_names import NewNames
from shared.config.lists import NameLimit
from shared.memory.overlay import ProcessOverlay
from shared.model.errors import OverloadedError
from tests.contracts.store import commit
from tests.emulators.datastore_fixtures import Datastore
from tests.world.manual_clock import ManualClock

LIMITS = (NameLimit("page:", 20), NameLimit("", 25))


class TestNewNames:
    async def test_a_flood_through_two_processes_stops_at_the_limit(self, datastore: Datastore) -> None:
        store, clock = await datastore.store(), ManualClock()
        await store.apply(commit(*((f"page:old{number}", 1) for number in range(12)), ("page;", 1)))
        mine, other = (NewNames(one, ProcessOverlay(clock), LIMITS, clock) for one in (store, await datastore.store()))
        flood = [f"page:{chr(0x1F600 + number)}" for number in range(100)]
        found = await asyncio.gather(*(mine.admit([name]) for name in flood))
        admitted = [name for name, refused in zip(flood, found, strict=True) if not refused]
        assert len(admitted) == 8
        await store.apply(commit(*((name, 1) for name in admitted)))
        assert await other.admit([f"page:old{number}" for number in range(12)] + admitted) == {}
        assert {*await other.admit(["page:more", "more"])} == {"page:more"}
        clock.turn(new_names.COUNT_AGAIN)
        assert {*await mine.admit(["page:more", *admitted, *(f"more{number}" for number in range(5))])} == {
            "page:more",
            "more4",
        }

    async def test_without_an_answer_no_new_name_is_admitted(self, datastore: Datastore) -> None:
        client = datastore.client()
        store = await datastore.store(client)
        await client.close()
        with pytest.raises(OverloadedError, match="the store does not say"):
            await NewNames(store, ProcessOverlay(ManualClock()), LIMITS, ManualClock()).check("page:1")

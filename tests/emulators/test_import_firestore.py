"""countersink import reads what Firebase's counter extension wrote, from the Firestore emulator in native mode."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from shared.config.urls import Firestore, firestore
from shared.model.errors import CountersinkError, SettingsError
from shared.model.moving import Foreign
from shared.moving import firestore_counter
from shared.moving.firestore_counter import SHARDS, FirestoreCounters
from tests.cli.running import Done, run
from tests.emulators.datastore_fixtures import shared_emulator
from tests.once import folder_of_run

NATIVE = ("emulators", "firestore", "start")


@pytest.fixture(scope="session")
def native_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shared_emulator(folder_of_run(tmp_path_factory), "native", NATIVE) as host:
        yield host


class Documents:
    """A project of its own, written as the extension and its clients write."""

    def __init__(self, host: str, session: aiohttp.ClientSession) -> None:
        self.project = f"test-{uuid4().hex[:12]}"
        self.place = Firestore(self.project, "(default)", "pages")
        self.root = f"projects/{self.project}/databases/(default)/documents"
        self._url = f"http://{host}/v1/{self.root}"
        self._session = session

    async def commit(self, *writes: dict[str, Any], transaction: str = "") -> bool:
        body = {"writes": writes} | ({"transaction": transaction} if transaction else {})
        async with self._session.post(f"{self._url}:commit", json=body, headers=OWNER) as answer:
            assert answer.status in {200, 409}, await answer.text()
            return answer.status == 200

    async def set(self, path: str, **fields: dict[str, Any]) -> None:
        assert await self.commit({"update": {"name": f"{self.root}/{path}", "fields": fields}})

    async def increment(self, path: str, field: str, by: int) -> None:
        """As a client does: in the shard that is its own."""
        change = {"fieldPath": field, "increment": {"integerValue": str(by)}}
        name = f"{self.root}/{path}"
        mask: dict[str, Any] = {"fieldPaths": []}
        write = {"update": {"name": name}, "updateMask": mask, "updateTransforms": [change]}
        while not await self.commit(write):
            await asyncio.sleep(0.01)

    async def aggregate(self, document: str, field: str, shard: str) -> None:
        """As a worker does: in one transaction, what is in the shard goes to the document, and the shard is deleted."""
        names = [f"{self.root}/{document}", f"{self.root}/{document}/{SHARDS}/{shard}"]
        async with self._session.post(f"{self._url}:beginTransaction", json={}, headers=OWNER) as answer:
            transaction = (await answer.json())["transaction"]
        body = {"documents": names, "transaction": transaction}
        async with self._session.post(f"{self._url}:batchGet", json=body, headers=OWNER) as answer:
            found = {one["found"]["name"]: one["found"] for one in await answer.json() if "found" in one}
        total = sum(int(one["fields"][field]["integerValue"]) for one in found.values())
        writes: list[dict[str, Any]] = [
            {"update": {"name": names[0], "fields": {field: whole(total)}}, "updateMask": {"fieldPaths": [field]}},
            {"delete": names[1]},
        ]
        await self.commit(*writes, transaction=transaction)  # if it fails, a later one moves it


OWNER = {"Authorization": "Bearer owner"}


def whole(number: int) -> dict[str, Any]:
    return {"integerValue": str(number)}


def of(**fields: dict[str, Any]) -> dict[str, Any]:
    return {"mapValue": {"fields": fields}}


def update(**fields: dict[str, Any]) -> dict[str, Any]:
    return of(_id_={"stringValue": uuid4().hex}, _data_=of(**fields))


def partial(*updates: dict[str, Any]) -> dict[str, Any]:
    return {"_updates_": {"arrayValue": {"values": list(updates)}}}


@pytest.fixture
async def documents(native_host: str) -> AsyncIterator[Documents]:
    async with aiohttp.ClientSession() as session:
        yield Documents(native_host, session)


async def read(documents: Documents, host: str, *fields: str, prefix: str = "") -> dict[str, int | str]:
    source = FirestoreCounters(documents.place, fields, host)
    found = [one async for one in source.counters(prefix) if isinstance(one, Foreign)]
    again = [await source.counter(one.name) for one in found]
    await source.close()
    assert again == found
    return {one.name: one.flaw or one.total for one in found}


async def test_a_total_is_the_field_and_what_is_not_moved_there_yet(documents: Documents, native_host: str) -> None:
    await documents.set("pages/moved", visits=whole(5), title={"stringValue": "x"})
    await documents.set("pages/both", visits=whole(5), likes=whole(1))
    await documents.increment(f"pages/both/{SHARDS}/{uuid4()}", "visits", 7)
    await documents.increment(f"pages/both/{SHARDS}/{uuid4()}", "visits", -2)
    await documents.set(f"pages/both/{SHARDS}/\t\tabc", **partial(update(visits=whole(10)), update(visits=whole(-4))))
    await documents.set(f"pages/both/{SHARDS}/\tabcd", **partial())
    await documents.increment(f"pages/new/{SHARDS}/{uuid4()}", "visits", 3)  # there is no such document yet
    await documents.set("pages/deep", stats=of(visits={"doubleValue": 4}))
    await documents.set(f"pages/deep/{SHARDS}/s", stats=of(visits=whole(1)))
    await documents.set("pages/odd", visits={"doubleValue": 1.5})
    await documents.set("pages/text", visits={"stringValue": "5"})
    await documents.set("pages/none", title={"stringValue": "x"})
    await documents.set("other/page", visits=whole(9))
    await documents.set(f"other/page/{SHARDS}/s", visits=whole(9))
    await documents.set(f"pages/both/pages/below/{SHARDS}/s", visits=whole(9))
    assert await read(documents, native_host, "visits", "stats.visits") == {
        "pages:moved:visits": 5,
        "pages:both:visits": 16,
        "pages:new:visits": 3,
        "pages:deep:stats.visits": 5,
        "pages:odd:visits": "a value of it is no whole number, but {'doubleValue': 1.5}",
        "pages:text:visits": "a value of it is no whole number, but {'stringValue': '5'}",
    }
    assert await read(documents, native_host, "likes", prefix="pages:b") == {"pages:both:likes": 1}


async def test_pages_of_documents_and_of_shards_are_of_one_instant(
    documents: Documents, native_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firestore_counter, "PAGE", 3)
    for number in range(7):
        await documents.set(f"pages/p{number}", visits=whole(number))
        await documents.increment(f"pages/p{number}/{SHARDS}/{uuid4()}", "visits", 10)
    assert await read(documents, native_host, "visits") == {f"pages:p{each}:visits": each + 10 for each in range(7)}


async def test_while_clients_count_and_workers_move_each_increment_is_added_once(
    documents: Documents, native_host: str, tmp_path: Path
) -> None:
    stop = asyncio.Event()
    counted = {f"pages:p{each}:visits": 0 for each in range(5)}
    shards = [uuid4().hex for _ in range(3)]

    async def count() -> None:
        while not stop.is_set():
            number = random.randrange(5)
            await documents.increment(f"pages/p{number}/{SHARDS}/{random.choice(shards)}", "visits", 1)
            counted[f"pages:p{number}:visits"] += 1

    async def move() -> None:
        while not stop.is_set():
            await documents.aggregate(f"pages/p{random.randrange(5)}", "visits", random.choice(shards))

    async def imported() -> tuple[Done, dict[str, Any]]:
        place = f"firestore://{documents.project}/pages"
        arguments = ("--variant", "firestore-counter", "--from", place, "--field", "visits", "--json", "--data", ".")
        done = await asyncio.to_thread(run, "import", *arguments, cwd=tmp_path, FIRESTORE_EMULATOR_HOST=native_host)
        return done, json.loads(done.out.splitlines()[-1])

    for number in range(5):
        await documents.set(f"pages/p{number}", visits=whole(0))
    made = await asyncio.to_thread(run, "provision", "--data", ".", cwd=tmp_path, COUNTERSINK_EXISTING="yes")
    assert made.code == 0
    added = 0
    async with asyncio.TaskGroup() as load:
        load.create_task(count())
        load.create_task(move())
        for _ in range(6):
            before = sum(counted.values())
            done, said = await imported()
            assert done.code == 0, done  # none seems to have fallen, since all is read at one instant
            added += said["added"]
            assert before <= added <= sum(counted.values()) + 1  # one may be under way
        stop.set()
    done, said = await imported()
    assert (done.code, added + said["added"]) == (0, sum(counted.values()))
    assert (await imported())[1]["added"] == 0


async def test_what_firestore_refuses_is_one_error(native_host: str) -> None:
    source = FirestoreCounters(Firestore("test-x", "(default)", "pages"), ("a`b.c-d", "..x"), native_host)
    with pytest.raises(CountersinkError, match="Firestore answers 400"):
        [one async for one in source.counters("")]
    await source.close()


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("firestore://p/pages", Firestore("p", "(default)", "pages")),
        ("firestore://p/db/pages", Firestore("p", "db", "pages")),
        ("firestore://p/users/ann/pages", Firestore("p", "(default)", "users/ann/pages")),
        ("firestore://p/db/users/ann/pages", Firestore("p", "db", "users/ann/pages")),
        ("firestore://p", None),
        ("firestore://p/", None),
        ("firestore:///pages", None),
        ("datastore://p/pages", None),
        ("firestore://p/pages?x=1", None),
    ],
)
def test_a_place_is_a_collection(url: str, place: Firestore | None) -> None:
    if place is not None:
        assert firestore("--from", url) == place
        return
    with pytest.raises(SettingsError, match="must be firestore://PROJECT"):
        firestore("--from", url)

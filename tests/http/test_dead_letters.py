"""Dead letters over HTTP: each is shown with its reason, counts once when it is replayed, and is gone when dropped."""

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from flusher.dead_letters import desk
from flusher.dead_letters.letters import OpenedLetter
from shared.model.dead_letters import MOST_SUMS_SHOWN
from shared.model.errors import TransientError
from shared.model.words import Envelope, Increment, Message
from shared.runtime import metrics
from shared.sqlite.broker import SqliteDeadLetters
from shared.sqlite.store import SqliteStore
from shared.wire.codec import encode
from tests.http.faults import failing
from tests.http.keys import guarded
from tests.http.service import Service

RULE = (
    "CREATE TRIGGER rule BEFORE INSERT ON shards WHEN NEW.counter LIKE 'poison%'"
    " BEGIN SELECT RAISE(ABORT, 'no poison'); END"
)
NONSENSE = b"\xff\x1b[31m<b>" + b"x" * 500


def execute(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "countersink.db", isolation_level=None)) as db:
        db.execute(statement)


async def bury(service: Service, folder: Path, *messages: Message, end: bool = True) -> None:
    """Have these messages refused, and some that can't be read."""
    execute(folder, RULE)
    await service.parts.publisher.publish(messages)
    logger = logging.getLogger("flusher")
    logger.setLevel(logging.CRITICAL)  # these errors are expected, and any other one fails the test
    await service.apply()
    logger.setLevel(logging.NOTSET)
    if end:
        execute(folder, "DROP TRIGGER rule")


def poison(number: int, delta: int = 1) -> Message:
    return encode(Envelope(f"p-{number}", {f"poison:{number}": delta}))


async def letters(service: Service, limit: int = 100) -> list[Any]:
    """All pages of the list."""
    found: list[Any] = []
    token, pages = "", 0
    while True:
        answer = await service.get(f"/v1/dead-letters?limit={limit}&page_token={token}")
        assert answer.status == 200, answer
        assert len(answer.json["dead_letters"]) <= limit
        found += answer.json["dead_letters"]
        token, pages = answer.json["next_page_token"], pages + 1
        assert answer.json["complete"] == (token is None)
        assert pages < 100
        if token is None:
            return found


async def replay(service: Service, **asked: Any) -> Any:
    answer = await service.post("/v1/dead-letters/replay", orjson.dumps(asked))
    assert answer.status == 200, answer
    return answer.json


async def drop(service: Service, *ids: str) -> Any:
    answer = await service.post("/v1/dead-letters/drop", orjson.dumps({"ids": ids}))
    assert answer.status == 200, answer
    return answer.json


async def test_the_list_says_what_each_is_and_why_and_changes_nothing(service: Service, tmp_path: Path) -> None:
    mixed = Envelope("p", {"poison": 5, "a": 2}, {"poison": 3}, (Increment("a", 10, "an id"),), 1)
    await bury(service, tmp_path, encode(mixed), Message(NONSENSE))
    before = await service.totals()
    for _ in range(2):
        refused, unreadable = await letters(service)
        assert "no poison" in refused["reason"]
        assert (refused["state"], refused["increments"], refused["counters"]) == ("dead", 5, {"poison": 5, "a": 12})
        assert refused == refused | {"flaw": None, "more_counters": 0, "size": None, "start": None}
        assert (unreadable["state"], unreadable["counters"], unreadable["increments"]) == ("unreadable", {}, 0)
        assert unreadable["size"] == len(NONSENSE)
        assert unreadable["start"].startswith("\\xff\x1b[31m<b>xxx")
        assert len(unreadable["start"]) < 210
        assert unreadable["flaw"]
        assert refused["published"] <= unreadable["published"]
    assert await service.totals() == before == {"poison": 5, "a": 12}


@pytest.mark.parametrize("limit", [1, 3, 4, 100])
async def test_pages_show_each_letter_once_and_are_bounded(
    service: Service, tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if most of the broker's letters are in the store."""
    monkeypatch.setattr(desk, "MOST_LETTERS_SEEN", 2)
    many = encode(Envelope("many", {f"poison:{number}": 1 for number in range(MOST_SUMS_SHOWN + 7)}))
    nonsense = [Message(b"nonsense %d" % number) for number in range(3)]
    await bury(service, tmp_path, *map(poison, range(5)), *nonsense, many)
    found = await letters(service, limit)
    assert len({one["id"] for one in found}) == len(found) == 9
    (large,) = [one for one in found if one["increments"] > 1]
    assert (len(large["counters"]), large["more_counters"]) == (MOST_SUMS_SHOWN, 7)
    assert sorted(one["start"] for one in found if one["start"]) == [f"nonsense {number}" for number in range(3)]


async def test_one_letter_counts_once_however_often_it_is_replayed(service: Service, tmp_path: Path) -> None:
    await bury(service, tmp_path, poison(1, 5), poison(2, 7))
    assert await service.totals() == {"poison:1": 5, "poison:2": 7}
    (one,) = [letter for letter in await letters(service) if "poison:1" in letter["counters"]]
    applied = metrics.APPLIED.get()
    done = await replay(service, ids=[one["id"]])
    assert (done["counted"], done["letters"], done["letters_left"], done["not_found"]) == (1, 1, 0, [])
    assert done["more"] is False
    again = await replay(service, ids=[one["id"]])
    assert (again["counted"], again["letters"], again["not_found"]) == (0, 0, [one["id"]])
    assert [letter["counters"] for letter in await letters(service)] == [{"poison:2": 7}]
    assert (await service.read("poison:1"))["applied"] == 5
    assert (await service.read("poison:2"))["pending"] == 7
    assert metrics.APPLIED.get() == applied  # they stay among the dead letters there
    assert service.parts.balance is not None
    assert service.parts.balance().drift == 0


async def test_all_are_replayed_and_those_that_can_not_be_counted_stay_with_the_reason(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("LONGEST", "LONGEST_CALL"):  # however slow the machine is, they are all of one request
        monkeypatch.setattr(desk, limit, 600.0)
    await bury(service, tmp_path, *map(poison, range(250)), Message(b"nonsense"), end=False)
    refused = await replay(service, all=True)
    assert (refused["counted"], refused["left"], refused["letters_left"]) == (0, 250, 251)
    assert len(refused["reasons"]) == 100
    assert "no poison" in refused["reasons"][0]["why"]
    execute(tmp_path, "DROP TRIGGER rule")
    done = await replay(service, all=True)
    assert (done["counted"], done["left"], done["letters_left"], done["more"]) == (250, 0, 1, False)
    (left,) = done["reasons"]
    (unreadable,) = await letters(service)
    assert unreadable["id"] == left["id"]
    assert "not valid JSON" in left["why"]
    gone = await drop(service, left["id"], "nothing")
    assert gone == {"dropped": [{"id": left["id"], "increments": 0}], "not_found": ["nothing"], "more": False}
    assert await letters(service) == []
    assert await service.totals() == {f"poison:{number}": 1 for number in range(250)}


async def test_many_administrators_at_once_count_each_letter_once(service: Service, tmp_path: Path) -> None:
    await bury(service, tmp_path, *map(poison, range(30)))
    ids = [one["id"] for one in await letters(service)]
    done = await asyncio.gather(
        *(replay(service, all=True) for _ in range(3)), *(replay(service, ids=ids) for _ in range(3))
    )
    assert sum(one["counted"] for one in done) == 30
    assert await service.totals() == {f"poison:{number}": 1 for number in range(30)}
    assert [*await asyncio.gather(*(letters(service) for _ in range(3)))] == [[], [], []]


async def test_a_replay_that_was_cut_off_after_its_commit_counts_nothing_twice(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(service, tmp_path, poison(1, 5))

    with monkeypatch.context() as patch:
        patch.setattr(SqliteDeadLetters, "ack", failing(TransientError("cut off")))
        assert (await replay(service, all=True))["counted"] == 1
    (letter,) = await letters(service)
    assert (letter["state"], letter["counters"]) == ("applied", {"poison:1": 5})
    assert await service.value("poison:1") == 5
    again = await replay(service, ids=[letter["id"]])
    assert (again["counted"], again["already"], again["letters_left"]) == (0, 1, 0)
    assert await letters(service) == []
    assert await service.value("poison:1") == 5


async def test_what_is_dropped_is_in_no_total_any_more(service: Service, tmp_path: Path) -> None:
    await bury(service, tmp_path, poison(1, 5), poison(2, 7))
    (one,) = [letter for letter in await letters(service) if "poison:1" in letter["counters"]]
    gone = await drop(service, one["id"])
    assert gone["dropped"] == [{"id": one["id"], "increments": 1}]
    assert await service.value("poison:1") == 0
    assert (await replay(service, all=True))["counted"] == 1
    assert await service.value("poison:1") == 0


async def test_a_replay_ends_in_time_and_says_that_there_is_more(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(service, tmp_path, *map(poison, range(10)))
    ids = [one["id"] for one in await letters(service)]
    with monkeypatch.context() as patch:
        patch.setattr(desk, "LONGEST", 0.0)
        steps = [await replay(service, **wanted) for wanted in ({"all": True}, {"ids": ids[1:]})]
        assert [(step["counted"], step["more"]) for step in steps] == [(1, True), (1, True)]
        gone = await drop(service, *ids)
        assert (len(gone["dropped"]), gone["more"]) == (1, True)
    rest = await replay(service, all=True)
    assert (rest["counted"], rest["more"]) == (7, False)


async def test_a_step_has_as_many_letters_as_are_fast(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(service, tmp_path, *map(poison, range(20)))
    sizes: list[int] = []
    run = desk.Replay.run

    async def noted(self: desk.Replay, opened: Sequence[OpenedLetter], patience: float) -> list[desk.ReplayOutcome]:
        sizes.append(len(opened))
        monkeypatch.setattr(desk, "STEP_WITHIN", 0.0 if len(opened) == 4 else 600.0)
        return await run(self, opened, patience)

    monkeypatch.setattr(desk, "LONGEST", 600.0)
    monkeypatch.setattr(desk.Replay, "run", noted)
    assert (await replay(service, all=True))["counted"] == 20
    assert sizes == [1, 2, 4, 2, 4, 2, 4, 1]


async def test_a_store_that_is_away_is_503_and_nothing_is_lost(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(service, tmp_path, poison(1, 5))

    with monkeypatch.context() as patch:
        patch.setattr(desk, "RETRY_STEP_FOR", 0.0)
        patch.setattr(SqliteStore, "apply", failing(TransientError("the store is away")))
        answer = await service.post("/v1/dead-letters/replay", b'{"all": true}')
        assert (answer.status, answer.json["detail"]) == (503, "the store is away")
    assert len(await letters(service)) == 1
    assert (await replay(service, all=True))["counted"] == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_broker_that_does_not_answer_is_503(
    service: Service, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    async def hang(*_: object) -> list[object]:
        await asyncio.Event().wait()
        return []

    target, body = ("", None) if method == "GET" else ("/replay", b'{"all": true}')
    with monkeypatch.context() as patch:
        patch.setattr(desk, "LONGEST_CALL", 0.05)
        patch.setattr(SqliteDeadLetters, "pull", hang)
        assert (await service.ask(method, f"/v1/dead-letters{target}", body)).status == 503
    assert await letters(service) == []


async def test_too_many_at_once_are_told_to_come_later(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "MOST_CALLERS_WAITING", 0)
    held = asyncio.Event()
    begun = asyncio.Event()

    async def hold(*_: object) -> list[object]:
        begun.set()
        await held.wait()
        return []

    monkeypatch.setattr(SqliteStore, "dead", hold)
    first = asyncio.create_task(service.get("/v1/dead-letters"))
    await begun.wait()
    refused = await service.get("/v1/dead-letters")
    held.set()
    assert (await first).status == 200
    assert refused.status == 503
    assert int(refused.headers["Retry-After"]) >= 1


async def test_a_key_with_prefixes_sees_no_dead_letters_and_can_do_nothing_to_them(tmp_path: Path) -> None:
    """A letter may hold counters of others, and it is replayed or dropped whole."""
    async with guarded(tmp_path, ops={}, some={"prefixes": ["poison"]}) as it:
        await bury(it.service, tmp_path, poison(1))
        (letter,) = (await it.ask("ops", "GET", "/v1/dead-letters")).json["dead_letters"]
        body = orjson.dumps({"ids": [letter["id"]]})
        for target, sent in (("", None), ("/replay", body), ("/replay", b'{"all": true}'), ("/drop", body)):
            refused = await it.ask("some", "GET" if sent is None else "POST", f"/v1/dead-letters{target}", sent)
            assert (refused.status, "poison" in refused.json["detail"]) == (403, False)
        assert (await it.post("ops", "/v1/dead-letters/replay", body)).json["counted"] == 1

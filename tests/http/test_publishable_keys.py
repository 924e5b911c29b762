"""Publishable keys, which anybody can read in a web page: none of them harms what others count."""

import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import ANY

import pytest

from ingest.access import keys
from shared.config.settings import Settings
from tests.http.answer import Answer
from tests.http.keys import SHOP, Guarded, guarded
from tests.http.service import running
from tests.world.manual_clock import ManualClock

SITE: Final = {"publishable": True, "scopes": ["write"], "prefixes": ["page:"], "origins": [SHOP]}


PIXELS: Final = {"pixels": ("page:",)}


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[Guarded]:
    shops = SITE | {"owner": "shop"}
    async with guarded(tmp_path, PIXELS, all={}, shop={"owner": "shop"}, site=SITE, blog=SITE, shops=shops) as it:
        yield it


@pytest.mark.parametrize("site", ["site", "shops"])
@pytest.mark.parametrize("victim", ["all", "shop", "blog"])
async def test_no_id_of_a_publishable_key_is_that_of_another_key(pages: Guarded, site: str, victim: str) -> None:
    """Who guesses the ids of others and sends them first voids nothing."""
    event: dict[str, Any] = {"ce-specversion": "1.0", "ce-id": "e", "ce-source": "s", "ce-type": "t"}

    async def count(who: str) -> None:
        one = "/v1/counters/page:a"
        for answer in (
            await pages.post(who, one, {"id": "i"}),
            await pages.post(who, one, Idempotency_Key="k"),
            await pages.post(who, one, b"id=form"),
            await pages.post(who, "/v1/increments", [{"counter": "page:a", "id": "j"}]),
            await pages.post(who, "/v1/increments", [{"counter": "page:a"}], Idempotency_Key="k"),
            await pages.post(who, "/v1/events", b'{"counter": "page:a"}', **event),
            await pages.post(
                who, "/v1/events", {"keyed": [{"counter": "page:a", "id": "n"}]}, **event | {"ce-id": "f"}
            ),
            await pages.ask(who, "GET", "/v1/counters/page:a/pixel.gif?id=p"),
        ):
            assert answer.status in {200, 202}, answer

    await count(site)
    await count(victim)
    assert await pages.totals() == {"page:a": 16}
    await pages.service.apply()
    for who in (site, victim):  # for each of them, an id counts once
        await count(who)
    await pages.service.apply()
    assert await pages.totals() == {"page:a": 16}


Sent = tuple[str, Any, dict[str, Any]]
"""A target, a body and headers."""
EVENT: Final[dict[str, Any]] = {"ce-specversion": "1.0", "ce-source": "s", "ce-type": "t"}
A, B = {"counter": "page:a"}, {"counter": "page:b"}


@pytest.mark.parametrize(
    ("guess", "real"),
    [
        (("/v1/counters/page:a", {"delta": 0, "id": "i"}, {}), ("/v1/counters/page:a/pixel.gif?id=i", None, {})),
        (
            ("/v1/increments", [A | {"delta": 0, "id": "i"}], {}),
            ("/v1/counters/page:a", None, {"Idempotency_Key": "i"}),
        ),
        *(
            (("/v1/increments", guess, {"Idempotency_Key": "k"}), ("/v1/increments", [A, B], {"Idempotency_Key": "k"}))
            for guess in ([A], [B, B], [A | {"delta": 0}], {"counters": {"page:a": 0}})
        ),
        *(
            (
                ("/v1/events", guess, EVENT | {"ce-id": "e"}),
                ("/v1/events", {"keyed": [A | {"id": "n"}]}, EVENT | {"ce-id": "e"}),
            )
            for guess in (A, A | {"delta": 0}, {"keyed": [A | {"id": "m"}]})
        ),
    ],
)
async def test_no_visitor_voids_what_another_sends(pages: Guarded, guess: Sent, real: Sent) -> None:
    """All visitors have the same key, so one can guess the id or the Idempotency-Key of another, and use it first."""

    async def send(sent: Sent) -> int:
        target, body, headers = sent
        return (await pages.ask("site", "POST" if "gif" not in target else "GET", target, body, **headers)).status

    await send(guess)
    await pages.service.apply()
    before = (await pages.totals()).get("page:a", 0)
    for _ in range(2):
        assert await send(real) in {200, 202}
        await pages.service.apply()
        assert await pages.totals() == {"page:a": before + 1} | ({"page:b": ANY} if "increments" in real[0] else {})


def event(data: Any, id_: str = "e") -> dict[str, Any]:
    return {"specversion": "1.0", "id": id_, "source": "s", "type": "t", "data": data}


def site(
    folder: Path, clock: ManualClock | None = None, **entry: Any
) -> contextlib.AbstractAsyncContextManager[Guarded]:
    """A service whose publishable key `site` has these fields, too."""
    return guarded(folder, PIXELS, clock, all={}, site=SITE | entry)


async def test_one_large_batch_does_not_silence_a_site(tmp_path: Path) -> None:
    """A few kilobytes of gzip hold many thousand increments."""
    async with site(tmp_path, ManualClock(), rate=100) as pages:
        many = gzip.compress(json.dumps([{"counter": "page:a"}] * 9_900).encode())
        events = [event([{"counter": "page:a"}] * 1_000, f"e{number}") for number in range(50)]
        batch: dict[str, Any] = {"Content_Type": "application/cloudevents-batch+json"}
        for answer in (
            await pages.post("site", "/v1/increments", many, Content_Encoding="gzip"),
            await pages.post(
                "site", "/v1/increments", {"counters": dict.fromkeys(map("page:{}".format, range(101)), 1)}
            ),
            await pages.post("site", "/v1/increments", [{"counter": "page:a", "id": str(n)} for n in range(101)]),
            await pages.post("site", "/v1/events", json.dumps(events).encode(), **batch),
        ):
            assert (answer.status, "100 increments" in answer.json["detail"]) == (413, True), answer.body
        assert (await pages.post("site", "/v1/counters/page:a", client=1)).status == 202
        assert await pages.totals() == {"page:a": 1}
        assert pages.service.ingest.bodies._refused._debts, "to read them was work"


async def test_one_client_can_not_use_up_what_a_key_may_send(tmp_path: Path) -> None:
    clock = ManualClock()
    async with site(tmp_path, clock, rate=100) as pages:

        async def flood() -> list[int]:
            """Batches of all sizes, from one client."""
            batches = [[{"counter": "page:a"}] * size for size in (100, 50, 10, 1, 1)]
            return [(await pages.post("site", "/v1/increments", batch)).status for batch in batches]

        assert await flood() == [202, 429, 429, 429, 429]
        for _ in range(3):
            clock.turn(1)
            assert await flood() == [429, 429, 202, 429, 429]
            others = [
                (await pages.post("site", "/v1/counters/page:b", client=client)).status for client in range(1, 31)
            ]
            assert others == [202] * 30
        clock.turn(0.05)
        refused = await pages.post("site", "/v1/counters/page:a")
        assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        assert "127.0.0.1" in refused.json["detail"]


@pytest.mark.parametrize(
    ("fields", "burst", "a_second"),
    [({}, 100, 10), ({"rate": 5}, 5, 1), ({"rate": 0.5}, 1, 0), ({"rate": 50, "client_rate": 40}, 50, 40)],
)
async def test_each_client_has_a_rate(tmp_path: Path, fields: dict[str, float], burst: int, a_second: int) -> None:
    clock = ManualClock()
    async with site(tmp_path, clock, **fields) as pages:
        for expected in (burst, a_second):
            seen = [(await pages.post("site", "/v1/counters/page:a")).status for _ in range(expected + 1)]
            assert seen == [202] * expected + [429]
            clock.turn(1)


async def test_a_key_has_a_rate_beside_those_of_its_clients(tmp_path: Path) -> None:
    async with site(tmp_path, ManualClock(), rate=3) as pages:
        seen = [(await pages.post("site", "/v1/counters/page:a", client=client)).status for client in range(5)]
        assert seen == [202, 202, 202, 429, 429]


async def test_rates_of_few_clients_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_CLIENTS", 3)
    async with site(tmp_path, ManualClock()) as pages:
        for client in range(9):
            assert (await pages.post("site", "/v1/counters/page:a", client=client)).status == 202
        ring = pages.service.ingest.door._ring
        assert ring is not None
        assert [client for _, client in ring._clients] == ["127.0.0.7", "127.0.0.8", "127.0.0.9"]


WAYS: Final[dict[str, Sent]] = {
    "one": ("/v1/counters/page:a", {"delta": "D"}, {}),
    "one with an id": ("/v1/counters/page:a", {"delta": "D", "id": "i"}, {}),
    "by": ("/v1/counters/page:a?by=D", None, {}),
    "form": ("/v1/counters/page:a", b"delta=D", {}),
    "form of a batch": ("/v1/increments", b"counter=page:a&delta=D", {}),
    "map": ("/v1/increments", {"counters": {"page:a": "D"}}, {}),
    "array": ("/v1/increments", [{"counter": "page:a", "delta": "D"}], {}),
    "lines": ("/v1/increments", b'{"counter": "page:a", "delta": D}\n{"counter": "page:a", "delta": D}', {}),
    "with ids": ("/v1/increments", [{"counter": "page:a", "delta": "D", "id": "i"}], {}),
    "with a key": ("/v1/increments", [{"counter": "page:a", "delta": "D"}], {"Idempotency_Key": "k"}),
    "that add up to one": ("/v1/increments", [{"counter": "page:a", "delta": d} for d in ("D", "-D")], {}),
    "event": ("/v1/events", {"counter": "page:a", "delta": "D"}, EVENT | {"ce-id": "e"}),
    "event in headers": ("/v1/events", None, EVENT | {"ce-id": "e", "ce-counter": "page:a", "ce-delta": "D"}),
    "event with ids": (
        "/v1/events",
        {"keyed": [{"counter": "page:a", "delta": "D", "id": "i"}]},
        EVENT | {"ce-id": "e"},
    ),
    "event with a map": ("/v1/events", {"counters": {"page:a": "D"}}, EVENT | {"ce-id": "e"}),
    "event that adds up": (
        "/v1/events",
        [{"counter": "page:a", "delta": d} for d in ("D", "-D")],
        EVENT | {"ce-id": "e"},
    ),
}


@pytest.mark.parametrize(("most", "good", "bad"), [(None, 1, (2, 0, -1, -(2**53) + 1)), (5, 5, (6, 0, -1))])
async def test_deltas_are_bounded_and_each_adds_something(
    tmp_path: Path, most: int | None, good: int, bad: tuple[int, ...]
) -> None:
    async with site(tmp_path, max_delta=most, rate=10_000.0) as pages:

        async def ask(way: str, delta: int) -> Answer:
            """Under an id of its own."""
            target, body, headers = WAYS[way]
            text = body.decode() if isinstance(body, bytes) else json.dumps(body)
            for old, new in (('"-D"', -delta), ('"D"', delta), ("D", delta), ('"i"', f'"{way}"')):
                text = text.replace(old, str(new))
            named: dict[str, Any] = {
                name: way if name in {"ce-id", "Idempotency_Key"} else value.replace("D", str(delta))
                for name, value in headers.items()
            }
            sent = None if body is None else text.encode()
            return await pages.post("site", target.replace("D", str(delta)), sent, **named)

        for way in WAYS:
            before = (await pages.totals()).get("page:a", 0)
            for delta in bad:
                answer = await ask(way, delta)
                if "add" not in way:
                    assert answer.status in {400, 422}, way
                    assert ("must be 1" if most is None else f"between 1 and {most}") in answer.json["detail"]
            assert (await pages.totals()).get("page:a", 0) <= before + 1, way
            if "add" not in way:
                assert (await ask(way, good)).status == 202, way
                assert (await pages.totals())["page:a"] == before + good * (2 if way == "lines" else 1), way


async def test_of_a_batch_what_is_allowed_counts(tmp_path: Path) -> None:
    async with site(tmp_path) as pages:
        answer = await pages.post(
            "site", "/v1/increments", [{"counter": "page:a", "delta": d} for d in (1, -5, 2, 0, 1)]
        )
        assert [one["index"] for one in answer.json["rejected"]] == [1, 2, 3]
        events = [event({"counter": "page:a", "delta": d}, f"e{d}") for d in (1, -5, 2, 0)]
        batch: dict[str, Any] = {"Content_Type": "application/cloudevents-batch+json"}
        answer = await pages.post("site", "/v1/events", json.dumps(events).encode(), **batch)
        assert [one["index"] for one in answer.json["rejected"]] == [1, 2, 3]
        assert await pages.totals() == {"page:a": 3}


async def test_a_key_makes_so_many_new_counters_an_hour(tmp_path: Path) -> None:
    """By whatever request, while others and counters that exist go on."""
    clock = ManualClock()
    async with site(tmp_path, clock, max_new=6) as pages:
        requests: list[Sent] = [
            ("/v1/counters/page:1", None, {}),
            ("/v1/increments", [{"counter": "page:2"}, {"counter": "page:1"}], {}),
            ("/v1/events", {"counter": "page:3"}, EVENT | {"ce-id": "1"}),
        ]
        for target, body, headers in requests:
            assert (await pages.post("site", target, body, **headers)).status == 202
        for _ in range(2):
            more: list[Sent] = [
                ("/v1/counters/page:4", None, {}),
                ("/v1/counters/page:4", {"id": "i"}, {}),
                ("/v1/increments", [{"counter": "page:4"}, {"counter": "page:5", "id": "i"}], {}),
                ("/v1/increments", {"counters": {"page:4": 1, "page:1": 1}}, {"Idempotency_Key": "k"}),
                ("/v1/events", {"counter": "page:4"}, EVENT | {"ce-id": "2"}),
            ]
            for target, body, headers in more:
                refused = await pages.post("site", target, body, **headers)
                assert (refused.status, "6 new counters an hour" in refused.json["detail"]) == (429, True)
            assert (await pages.ask("site", "GET", "/v1/counters/page:4/pixel.gif")).status == 429
            mixed = await pages.post("site", "/v1/increments", [{"counter": "page:1"}, {"counter": "page:4"}])
            assert (mixed.status, mixed.json["accepted"]) == (202, 1)
            assert (await pages.post("site", "/v1/counters/page:2")).status == 202
            await pages.service.apply()
            clock.turn(600)
        assert (await pages.post("all", "/v1/counters/page:9")).status == 202
        assert (await pages.post("site", "/v1/counters/page:9")).status == 202
        clock.turn(3_600)
        assert (await pages.post("site", "/v1/counters/page:4")).status == 202
        assert (await pages.totals()).keys() == {f"page:{number}" for number in (1, 2, 3, 4, 9)}


async def test_one_client_leaves_room_for_new_counters_of_others(tmp_path: Path) -> None:
    """It may make half of what is free, also if requests of several clients fail and give theirs back."""
    clock = ManualClock()
    async with site(tmp_path, clock, max_new=8, max_delta=2) as pages:
        assert (await pages.post("all", "/v1/counters/page:a")).status == 202
        assert (await pages.post("site", "/v1/counters/page:a", {"id": "i"})).status == 202
        for hour in range(2):
            for client, expected in ((0, 4), (1, 2), (2, 1), (3, 1), (4, 0)):
                seen = []
                for number in range(5):
                    name = f"page:{hour}-{client}-{number}"
                    bad = [{"counter": name}, {"counter": "page:a", "id": "i", "delta": 2}]
                    assert (await pages.post("site", "/v1/increments", bad, client=client)).status in {422, 429}
                    answer = await pages.post("site", f"/v1/counters/{name}", client=client)
                    seen.append(answer.status)
                assert seen == [202] * expected + [429] * (5 - expected), answer
            clock.turn(3_600)


async def test_a_request_of_which_nothing_counts_makes_no_new_counter(tmp_path: Path) -> None:
    async with site(tmp_path, ManualClock(), max_new=1, max_delta=2) as pages:
        assert (await pages.post("all", "/v1/counters/page:a")).status == 202
        assert (await pages.post("site", "/v1/counters/page:a", {"id": "i"})).status == 202
        for _ in range(3):
            bad = [{"counter": "page:new"}, {"counter": "page:a", "id": "i", "delta": 2}]
            assert (await pages.post("site", "/v1/increments", bad)).status == 422
            assert (await pages.post("site", "/v1/counters/page:new", {"delta": 0})).status == 422
        assert (await pages.post("site", "/v1/counters/page:new")).status == 202
        assert (await pages.post("site", "/v1/counters/page:one-more")).status == 429


async def test_zero_deltas_make_no_counter_for_nobody(tmp_path: Path) -> None:
    """A POST of them could take all names that COUNTERSINK_MAX_COUNTERS allows."""
    limits = Settings.read({"COUNTERSINK_MAX_COUNTERS": "=3"}).max_counters
    async with running(tmp_path, max_counters=limits) as service:
        requests: list[Sent] = [
            ("/v1/increments", {"counters": dict.fromkeys(map("n{}".format, range(1_000)), 0)}, {}),
            ("/v1/increments", [{"counter": "n1", "delta": 0, "id": "i"}], {"Idempotency_Key": "k"}),
            ("/v1/counters/n2?wait=applied&timeout=0", {"delta": 0, "id": "j"}, {}),
            ("/v1/events", {"counter": "n3", "delta": 0}, EVENT | {"ce-id": "1"}),
        ]
        for target, body, headers in requests:
            assert (await service.post(target, json.dumps(body).encode(), **headers)).status == 202
        # What is pending of them makes no counter, either, nor room for one.
        assert await service.totals() == {}
        for number in range(5):
            expected = 202 if number < 3 else 429
            assert (await service.incr(f"n{number}")).status == expected
        await service.apply()
        assert await service.totals() == {"n0": 1, "n1": 1, "n2": 1}
        assert (await service.incr("n2", b'{"delta": 0, "id": "j"}')).json["duplicate"]
        assert (await service.incr("n2", b'{"delta": 1, "id": "j"}')).status == 422, "its id was used"
        assert (await service.read("n7"))["exists"] is False
        assert (await service.ask("PUT", "/v1/counters/n7", b'{"value": 0}')).status == 429
    async with running(tmp_path) as service:
        assert (await service.ask("PUT", "/v1/counters/n7", b'{"value": 0}')).status == 200
        assert (await service.read("n7"))["exists"] is True, "to set a counter to 0 makes it"
        for delta in (1, -1):
            await service.incr("n8", b'{"delta": %d}' % delta)
            await service.ingest.publishing.drain()
        await service.apply()
        assert (await service.read("n8"))["exists"] is True, "it was counted"

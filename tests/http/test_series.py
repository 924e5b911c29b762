"""Counts by time over HTTP: pending or applied, each increment is in one point, by the time when it was accepted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from countersink import AsyncClient, Point, RejectedError
from shared.config.settings import Settings
from shared.model.errors import StorageFullError
from shared.model.words import Envelope, Increment, Message
from shared.sqlite.database import connect_to
from shared.wire.codec import encode
from tests.http.faults import failing
from tests.http.service import Service, running, url_name

DAY = 86_400_000
RULES = Settings.read({"COUNTERSINK_WINDOWS": "page:=minute/2d,hour/90d,day/2y;page:old=day/1d;=day/1y"}).windows


@pytest.fixture
async def keeping(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path, windows=RULES) as service:
        yield service


async def series(service: Service, name: str, query: str) -> Any:
    answer = await service.get(f"/v1/counters/{url_name(name)}/series{query}")
    assert answer.status == 200, answer
    assert answer.json["total"] == sum(point["count"] for point in answer.json["points"])
    return answer.json


async def publish(service: Service, key: str, counter: str, delta: int, created: int) -> None:
    await service.parts.publisher.publish([encode(Envelope(key, {counter: delta}, created=created))])


def millis(when: datetime) -> int:
    return int(when.timestamp() * 1_000)


def written(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_the_python_client_reads_it(keeping: Service) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    ago = today - timedelta(days=3)
    await publish(keeping, "e1", "page:a", 5, millis(ago))
    await publish(keeping, "e2", "page:a", 7, millis(ago + timedelta(days=1)))
    await keeping.apply()
    async with AsyncClient(keeping.url) as client:
        found = await client.series("page:a", begin=ago, end=today)
        assert found.points == (Point(ago, 5), Point(ago + timedelta(days=1), 7))
        assert (found.name, found.by, found.begin, found.end, found.total) == ("page:a", "day", ago, today, 12)
        (point,) = (await client.series("page:a", "hour", begin=ago, end=ago + timedelta(hours=1))).points
        assert point == Point(ago, 5)
        assert (await client.series("page:a")).by == "day"
        with pytest.raises(RejectedError, match="time zone"):
            await client.series("page:a", begin=datetime.now())  # noqa: DTZ005
        with pytest.raises(RejectedError, match="COUNTERSINK_WINDOWS"):
            await client.series("page:old", "hour")


async def test_what_is_pending_and_what_is_applied_are_in_the_same_points(keeping: Service) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    ago = today - timedelta(days=3)
    for number, later in enumerate((0, 0.99, 1, 23.5, 24)):
        await publish(keeping, f"e{number}", "page:a", 10**number, millis(ago + timedelta(hours=later)))
    await publish(keeping, "other", "page:ab", 7, millis(ago))
    asked = f"?by=hour&from={written(ago)}&to={written(ago + timedelta(days=1))}"
    before = await series(keeping, "page:a", asked)
    hours = {written(ago): 11, written(ago + timedelta(hours=1)): 100, written(ago + timedelta(hours=23)): 1_000}
    assert before["points"] == [{"from": when, "count": count} for when, count in hours.items()]
    assert (before["exact"], before["total"], before["name"], before["by"]) == (False, 1_111, "page:a", "hour")
    assert (before["from"], before["to"]) == (written(ago), written(ago + timedelta(days=1)))
    await keeping.apply()
    after = await series(keeping, "page:a", asked)
    assert before | {"as_of": "", "exact": True} == after | {"as_of": ""}
    days = await series(keeping, "page:a", "?by=day")
    assert days["points"] == [
        {"from": written(ago), "count": 1_111},
        {"from": written(ago + timedelta(days=1)), "count": 10_000},
    ]
    assert days["exact"]


async def test_an_increment_of_now_is_in_the_present_period(keeping: Service) -> None:
    await keeping.incr("page:a", b'{"delta": 3}')
    await keeping.incr("page:a", b'{"delta": 4, "id": "x"}')
    await keeping.apply()
    await keeping.incr("page:a", b'{"delta": 4, "id": "x"}')
    await keeping.incr("page:a", b'{"delta": -2}')
    for by in ("minute", "hour", "day"):
        found = await series(keeping, "page:a", f"?by={by}")
        assert (found["total"], found["exact"]) == (5, True)
    assert (await series(keeping, "page:b", "?by=hour"))["points"] == []


async def test_a_message_of_others_counts_by_its_publish(keeping: Service) -> None:
    await keeping.parts.publisher.publish([Message(b'{"counter": "page:a", "delta": 2}')])
    before = await series(keeping, "page:a", "?by=hour")
    await keeping.apply()
    after = await series(keeping, "page:a", "?by=hour")
    assert before["points"] == after["points"]
    assert after["total"] == 2


async def test_a_set_changes_the_total_and_no_series(keeping: Service) -> None:
    await keeping.incr("page:a", b'{"delta": 3}')
    await keeping.apply()
    assert (await keeping.ask("PUT", "/v1/counters/page%3Aa", b'{"value": 100}')).status == 200
    assert (await keeping.ask("DELETE", "/v1/counters/page%3Aa")).status == 200
    found = await series(keeping, "page:a", "?by=hour")
    assert (found["total"], found["exact"]) == (3, True)


async def test_the_longest_prefix_decides_and_what_is_not_kept_is_404(keeping: Service) -> None:
    for name, by, status in (
        ("page:a", "minute", 200),
        ("page:old", "hour", 404),
        ("page:old", "day", 200),
        ("x", "hour", 404),
        ("x", "day", 200),
    ):
        assert (await keeping.get(f"/v1/counters/{url_name(name)}/series?by={by}")).status == status


async def test_without_rules_it_is_404(service: Service) -> None:
    answer = await service.get("/v1/counters/a/series?by=hour")
    assert (answer.status, "COUNTERSINK_WINDOWS" in answer.json["detail"]) == (404, True)


async def test_what_is_older_than_its_retention_is_not_shown(keeping: Service) -> None:
    now = datetime.now(UTC)
    await publish(keeping, "new", "page:old", 1, millis(now))
    await publish(keeping, "old", "page:old", 10, millis(now - timedelta(days=2, hours=1)))
    asked = f"?by=day&from={written(now - timedelta(days=9))}"
    for applied in (False, True):
        found = await series(keeping, "page:old", asked)
        assert (found["total"], found["exact"]) == (1, applied)
        assert found["from"] > written(now - timedelta(days=3))
        await keeping.apply()


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00%2B23:59", "1969-12-31T23:59:59.5Z", "9999-12-31t23:59:59z"])
@pytest.mark.parametrize("by", sorted({by for rule in RULES for by, _ in rule.kept}))
async def test_far_instants_are_fine(keeping: Service, when: str, by: str) -> None:
    for query in (f"from={when}", f"to={when}"):
        answer = await keeping.get(f"/v1/counters/page%3Aa/series?by={by}&{query}")
        assert answer.status in {200, 422}, answer


@pytest.mark.parametrize(
    ("fraction", "first"), [("000000000", "02"), ("000000001", "03"), ("0000010", "03"), ("9999999999", "03")]
)
async def test_an_instant_may_have_any_fraction(keeping: Service, fraction: str, first: str) -> None:
    query = f"?by=hour&from=2100-01-01T02:00:00.{fraction}Z&to=2100-01-01T05:00:00.{fraction}Z"
    assert (await series(keeping, "page:x", query))["from"] == f"2100-01-01T{first}:00:00Z"


async def test_a_part_of_a_period_begins_with_the_next(keeping: Service) -> None:
    ago = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
    for number in range(3):
        await publish(keeping, f"e{number}", "page:a", 10**number, millis(ago + timedelta(hours=number)))
    asked = f"?by=hour&from={written(ago + timedelta(minutes=1))}&to={written(ago + timedelta(hours=1, minutes=1))}"
    found = await series(keeping, "page:a", asked)
    assert found["total"] == 10
    assert found["from"] == written(ago + timedelta(hours=1))


@pytest.mark.usefixtures("in_one_minute")
async def test_a_rule_that_is_new_says_so_of_what_was_before(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        await service.incr("page:a")
        await service.apply()
    async with running(tmp_path, windows=RULES) as service:
        await service.incr("page:a")
        assert not (await series(service, "page:a", "?by=minute"))["exact"]
        await service.apply()
        now = datetime.now(UTC)
        day = await series(service, "page:a", f"?by=minute&from={written(now - timedelta(days=1))}")
        assert not day["exact"]
        assert (await series(service, "page:a", "?by=minute"))["exact"]
        later = await series(service, "page:a", f"?by=minute&from={written(now + timedelta(minutes=1))}")
        assert later["exact"]


@pytest.mark.usefixtures("in_one_minute")
async def test_readings_at_the_same_time_as_flushes_never_miss_one(keeping: Service) -> None:
    seen = 0
    async with keeping.applying():
        for number in range(1, 40):
            assert (await keeping.incr("page:a")).status == 202
            found = await series(keeping, "page:a", "?by=day")
            assert found["exact"]
            assert found["total"] == number > seen
            seen = found["total"]
            await asyncio.sleep(0)


def hours_ago(number: float) -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=number)


@pytest.fixture
def over() -> tuple[datetime, str]:
    """An hour that is over: its beginning, and the question for its series."""
    begin = hours_ago(3)
    return begin, f"?by=hour&from={written(begin)}&to={written(begin + timedelta(hours=1))}"


async def test_a_total_of_a_period_that_is_over_is_final_once_it_was_exact(keeping: Service) -> None:
    """Whatever dates an increment: here it was made long before its publish ended."""
    begin, end = hours_ago(3), hours_ago(2)
    await publish(keeping, "before", "page:a", 1, millis(begin))
    await keeping.apply()
    for by in ("minute", "hour"):
        asked = f"?by={by}&from={written(begin)}&to={written(end)}"
        said = await series(keeping, "page:a", asked)
        assert (said["total"], said["exact"]) == (1, True)
        await publish(keeping, f"late {by}", "page:a", 10, millis(begin))
        for _ in range(2):
            later = await series(keeping, "page:a", asked)
            assert later | {"as_of": ""} == said | {"as_of": ""}
            await keeping.apply()
    all_ = await series(keeping, "page:a", f"?by=hour&from={written(begin)}")
    assert (all_["total"], all_["exact"]) == (21, True), "nothing is lost"


async def test_what_is_pending_in_a_period_that_is_over_stays_in_it(
    keeping: Service, over: tuple[datetime, str]
) -> None:
    """So a reading is not exact until it is applied."""
    begin, asked = over
    await publish(keeping, "e", "page:a", 10, millis(begin))
    for applied in (False, True, True):
        found = await series(keeping, "page:a", asked)
        assert (found["total"], found["exact"]) == (10, applied)
        await keeping.apply()


async def test_two_uses_of_an_id_do_not_move_what_was_said_to_be_final(
    keeping: Service, over: tuple[datetime, str]
) -> None:
    begin, asked = over
    first = Envelope("e", {}, keyed=(Increment("page:a", 5, "x"),), created=millis(begin))
    await keeping.parts.publisher.publish([encode(first)])
    assert not (await series(keeping, "page:a", asked))["exact"]
    await keeping.incr("page:a", b'{"delta": 5, "id": "x"}')
    await keeping.apply()
    said = await series(keeping, "page:a", asked)
    assert said["exact"]
    assert (await series(keeping, "page:a", "?by=day"))["total"] == 5


async def test_without_room_to_write_a_series_is_not_exact(
    keeping: Service, over: tuple[datetime, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping.parts.store, "close_periods", failing(StorageFullError("the disk is full")))
    _, asked = over
    assert not (await series(keeping, "page:a", asked))["exact"]
    monkeypatch.undo()
    assert (await series(keeping, "page:a", asked))["exact"]


def set_back(service: Service, ahead: timedelta) -> None:
    """Until now the clock was so far ahead, and somebody read a series. Then it was set right."""
    closed = millis(datetime.now(UTC).replace(second=0, microsecond=0) + ahead)
    with closing(connect_to(Path(service.parts.store.database.path))) as db:  # type: ignore[attr-defined]
        db.execute("UPDATE dates SET closed = ?", (closed,))


async def test_after_a_clock_was_set_back_the_present_is_where_increments_count(keeping: Service) -> None:
    await keeping.incr("page:a")
    await keeping.apply()
    set_back(keeping, timedelta(hours=2))
    await keeping.incr("page:a")
    for _ in range(2):
        for by in ("minute", "hour", "day"):
            found = await series(keeping, "page:a", f"?by={by}")
            assert (found["total"], found["exact"]) == (2, True)
        await keeping.apply()


async def test_a_clock_that_was_far_ahead_puts_nothing_into_that_future(keeping: Service) -> None:
    await keeping.incr("page:a")
    await keeping.apply()
    set_back(keeping, timedelta(days=400))
    await keeping.incr("page:a")
    for _ in range(2):
        found = await series(keeping, "page:a", f"?by=hour&from={written(hours_ago(3))}")
        assert (found["total"], found["exact"]) == (2, False)
        await keeping.apply()

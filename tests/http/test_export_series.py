"""Exports of counts by time: a line for each counter, as its series is answered, with its total of the same instant."""

from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from shared.config.lists import rules_of
from shared.counters.series import MOST_POINTS
from shared.model.errors import InexactError
from shared.sqlite.database import connect_to
from tests.http.answer import Answer
from tests.http.service import Service, running, url_name
from tests.http.test_jobs import Blind, job, pages_of
from tests.http.test_series import millis, publish, series, written

RULES = rules_of("p:=minute/90d,hour/90d,day/2y;p:old=day/2y")


@pytest.fixture
async def keeping(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path, windows=RULES) as service:
        yield service


HOUR: Final = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
"""The present one, or the one before: each test asks more than once."""


def ago(**its: float) -> datetime:
    """So long before that hour."""
    return HOUR - timedelta(**its)


async def start(service: Service, **body: Any) -> Answer:
    return await service.post("/v1/jobs", orjson.dumps({"kind": "export", "prefix": "p:", "id": "j"} | body))


async def lines(service: Service, id_: str = "j") -> list[Any]:
    found = [orjson.loads(line) for page in await pages_of(service, id_) for line in page.splitlines()]
    return [line | {"as_of": ""} for line in found]


async def test_each_line_is_the_series_and_the_total_of_its_counter(keeping: Service) -> None:
    for number in range(3):
        await publish(keeping, f"a{number}", "p:a", 10**number, millis(ago(hours=number)))
        await publish(keeping, f"b{number}", 'p:"b', -7, millis(ago(days=number)))
    await publish(keeping, "none", "p:none", 0, millis(ago(days=3)))
    await keeping.apply()
    await publish(keeping, "late", "p:a", 2**52, millis(ago(hours=1)))
    assert (await keeping.ask("PUT", "/v1/counters/p%3Aa", b'{"value": 5}')).status == 200
    await publish(keeping, "later", "p:a", 1_000, millis(ago(hours=3)))
    await keeping.apply()
    begun = await start(keeping, by="hour")
    assert (begun.status, begun.json["by"], begun.json["from"], begun.json["to"]) == (202, "hour", None, None)
    assert (await start(keeping, by="hour")).status == 200
    await keeping.work()
    wanted = []
    for name, value in (('p:"b', -21), ("p:a", 1_005)):  # nobody counted p:none but by 0
        found = await series(keeping, name, "?by=hour")
        assert found["exact"]
        wanted.append(found | {"value": value, "as_of": ""})
    assert await lines(keeping) == wanted
    assert [len(line["points"]) for line in wanted] == [3, 4]
    assert (await job(keeping, "j"))["visited"] == 2


async def test_what_was_deleted_or_has_no_such_counts_is_left_out(keeping: Service) -> None:
    for name in ("p:gone", "p:here", "p:old", "p:older", "q"):
        await keeping.incr(name)
    await keeping.apply()
    assert (await keeping.ask("DELETE", f"/v1/counters/{url_name('p:gone')}")).status == 200
    for prefix in ("", "p", "p:h"):
        assert (await start(keeping, prefix=prefix, by="hour", id=f"j{prefix[:1]}{len(prefix)}")).status == 202
    await keeping.work()
    for id_ in ("j0", "jp1", "jp3"):
        assert [line["name"] for line in await lines(keeping, id_)] == ["p:here"]


async def test_a_range_is_that_of_a_series(keeping: Service) -> None:
    for number in range(6):
        await publish(keeping, f"a{number}", "p:a", 10**number, millis(ago(hours=number)))
    await keeping.apply()
    begin, end = written(ago(hours=4, minutes=-1)), written(ago(hours=1, minutes=-1))
    begun = await start(keeping, **{"by": "hour", "from": begin, "to": end})
    assert (begun.json["from"], begun.json["to"]) == (begin.replace("Z", ".000Z"), end.replace("Z", ".000Z"))
    await keeping.work()
    (line,) = await lines(keeping)
    assert (line["total"], line["value"]) == (1_110 - 10**3 + 10**3, 111_111)
    assert line == await series(keeping, "p:a", f"?by=hour&from={begin}&to={end}") | {"value": 111_111, "as_of": ""}


async def test_it_waits_until_periods_that_are_over_are_final(keeping: Service) -> None:
    await publish(keeping, "a", "p:a", 1, millis(ago(hours=3)))
    assert (await start(keeping, by="hour")).status == 202
    (lease,) = await keeping.parts.tasks.pull(1, 0)
    with pytest.raises(InexactError):
        await keeping._worker.work(lease.task)
    await keeping.parts.tasks.give_back([lease.token])
    await keeping.apply()
    await keeping.work()
    (line,) = await lines(keeping)
    assert (line["total"], line["exact"]) == (1, True)


@pytest.mark.usefixtures("in_one_minute")
async def test_without_an_end_all_lines_end_with_the_period_in_which_the_job_began(keeping: Service) -> None:
    await keeping.incr("p:a")
    before = written(datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1))
    await start(keeping, by="minute")
    after = written(datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1))
    await publish(keeping, "future", "p:a", 1, millis(datetime.now(UTC) + timedelta(minutes=5)))
    await keeping.work()
    (line,) = await lines(keeping)
    assert (line["total"], line["value"], line["exact"]) == (1, 2, True)
    assert before <= line["to"] <= after


@pytest.mark.usefixtures("in_one_minute")
async def test_far_instants_are_fine(keeping: Service) -> None:
    await keeping.incr("p:a")
    begin, near = "0001-01-01T00:00:00+23:59", written(datetime.now(UTC) + timedelta(days=1))
    far = await start(keeping, **{"by": "day", "from": begin, "to": "9999-12-31T23:59:59.9999Z"})
    assert far.status == 422
    begun = await start(keeping, **{"by": "day", "from": begin, "to": near, "id": "b"})
    assert (begun.status, begun.json["from"]) == (202, "0001-01-01T00:00:00.000Z")
    await keeping.work()
    assert [line["total"] for line in await lines(keeping, "b")] == [1]


async def test_without_rules_it_is_refused(service: Service) -> None:
    refused = await start(service, by="hour")
    assert (refused.status, refused.json["field"]) == (422, "by")
    assert "COUNTERSINK_WINDOWS" in refused.json["detail"]


@pytest.mark.parametrize("other", [{}, {"by": "day"}, {"by": "hour", "to": "2026-01-01T00:00:00Z"}])
async def test_another_span_is_another_job(keeping: Service, other: dict[str, Any]) -> None:
    await start(keeping, by="hour")
    refused = await start(keeping, **other)
    assert (refused.status, refused.json["field"]) == (409, "id")
    assert "export under the prefix 'p:', by hour" in refused.json["detail"]


async def test_a_rule_that_is_new_holds_nothing_up(tmp_path: Path) -> None:
    """Each line says since when it is whole."""
    async with running(tmp_path) as service:
        await publish(service, "a", "p:a", 1, millis(ago(hours=5)))
        await service.apply()
    async with running(tmp_path, windows=RULES) as service:
        assert (await start(service, by="hour", id="none")).status == 202
        await service.work()
        (line,) = await lines(service, "none")
        assert (line["from"], line["points"], line["exact"], line["value"]) == (line["to"], [], False, 1)
        began = written(datetime.now(UTC))
        await publish(service, "b", "p:a", 10, millis(datetime.now(UTC)))
        await service.apply()
        assert (await start(service, by="minute")).status == 202
        await service.work()
        (line,) = await lines(service)
        assert (line["exact"], line["value"]) == (True, 11)
        assert line["from"] > began
        assert [(await job(service, id_))["state"] for id_ in ("none", "j")] == ["done", "done"]


async def test_a_flusher_without_rules_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, windows=RULES) as service:
        await service.incr("p:a")
        assert (await start(service, by="hour")).status == 202
    async with running(tmp_path) as service:
        await service.work()
        failed = await job(service, "j")
        assert failed["state"] == "failed"
        assert "job j has failed" in caplog.text
        caplog.clear()
        assert "all processes need the same COUNTERSINK_WINDOWS" in failed["reason"]


@pytest.mark.usefixtures("in_one_minute")
async def test_what_can_not_be_read_exactly_waits(keeping: Service) -> None:
    await keeping.incr("p:a")
    assert (await start(keeping, by="hour")).status == 202
    overlay = keeping.parts.overlay
    its, overlay.__class__ = overlay.__class__, Blind
    (lease,) = await keeping.parts.tasks.pull(1, 0)
    with pytest.raises(Exception, match="can't be read exactly now"):
        await keeping._worker.work(lease.task)
    overlay.__class__ = its
    await keeping.parts.tasks.give_back([lease.token])
    await keeping.work()
    assert [line["total"] for line in await lines(keeping)] == [1]


async def test_chunks_are_small_and_have_each_counter_once(keeping: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"p:{number:03}" for number in range(100)]
    for number in range(0, 100, 50):
        await keeping.post("/v1/increments", orjson.dumps({"counters": dict.fromkeys(names[number : number + 50], 1)}))
    await keeping.apply()
    most = 700
    monkeypatch.setattr("flusher.jobs.MOST_IN_CHUNK", most)
    assert (await start(keeping, by="day")).status == 202
    await keeping.work()
    assert [line["name"] for line in await lines(keeping)] == names
    done = await job(keeping, "j")
    assert (done["state"], done["visited"], done["share"]) == ("done", 100, 1.0)
    chunks = await keeping.parts.jobs.chunks("j", "", 1_000)
    assert len(chunks) == done["tasks"] > 30
    assert max(len(chunk) for _, chunk in chunks) <= most


async def test_the_longest_line_fits(keeping: Service, tmp_path: Path) -> None:
    """As many points as a reading may have, each with the greatest count, of a counter with the longest name."""
    name = "p:" + '"' * 398
    for one in (name, name[:-1]):
        await keeping.incr(one)
    await keeping.apply()
    last = millis(datetime.now(UTC)) // 60_000 * 60_000
    rows = [
        (one, "minute", last - number * 60_000, shard, -(2**62), 2**60)
        for one in (name, name[:-1])
        for number in range(-5, MOST_POINTS + 5)
        for shard in (1, 2)
    ]
    with closing(connect_to(tmp_path / "countersink.db")) as db:
        db.execute("BEGIN")
        db.executemany("INSERT INTO buckets VALUES (?, ?, ?, ?, ?, ?)", rows)
        db.execute("COMMIT")
    assert (await start(keeping, by="minute")).status == 202
    await keeping.work()
    found = await lines(keeping)
    assert [len(line["points"]) for line in found] == [MOST_POINTS, MOST_POINTS]
    assert found[0]["points"][0]["count"] == -(2**63)
    chunks = await keeping.parts.jobs.chunks("j", "", 10)
    assert [bool(chunk) for _, chunk in chunks].count(True) == 2
    assert max(len(chunk) for _, chunk in chunks) < 2**20 - 100_000

"""countersink audit on a file with counts by time, and what it says of those that somebody damaged."""

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from shared.config.settings import rules_of
from shared.model.buckets import DAY, HOUR
from tests.cli.test_audit import audit, summary
from tests.http.service import running
from tests.http.test_series import publish

RULES = rules_of("page:=minute/2d,hour/90d,day/2y;other:=day/1y")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a file in which three counters were counted."""

    async def fill() -> None:
        async with running(data, windows=RULES) as service:
            for name in ("page:a", "page:b", "other:c"):
                for number, delta in enumerate((3, -1, 2**52)):
                    await publish(service, f"{name}-{number}", name, delta, ago)
                await service.apply()

    ago = int(time.time()) // 3_600 * HOUR - HOUR // 2
    (data := tmp_path / ".countersink").mkdir()
    asyncio.run(fill())
    return tmp_path


def damage(folder: Path, harm: str) -> None:
    with closing(sqlite3.connect(folder / ".countersink" / "countersink.db", isolation_level=None)) as db:
        db.executescript(harm)


def test_what_flushers_wrote_adds_up(folder: Path) -> None:
    done = audit(folder, "--json")
    assert (done.code, done.lines) == (0, [])
    assert summary(done)["compared"] >= 6
    assert summary(audit(folder, "--json", "other:c"))["compared"] == 0
    assert "hours and days compared with the shorter periods in them" in audit(folder).out


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("UPDATE buckets SET count = count + 1 WHERE counter = 'page:a' AND period = 'day'", "the minutes of the day"),
        ("UPDATE buckets SET count = count - 7 WHERE counter = 'page:a' AND period = 'hour'", "of the hour from"),
        (
            "DELETE FROM buckets WHERE counter = 'page:a' AND period = 'minute'",
            f"sum to 0, and the hour has {2**52 + 2}",
        ),
        (
            "PRAGMA ignore_check_constraints = 1; UPDATE buckets SET count = 1e300 WHERE counter = 'page:a'",
            "is no whole number of 64 bits",
        ),
        ("UPDATE buckets SET begin = begin + 1 WHERE counter = 'page:a' AND period = 'day'", "no such day begins then"),
        ("UPDATE buckets SET period = 'week' WHERE counter = 'page:a' AND period = 'day'", "no such week begins then"),
        (
            "INSERT INTO buckets SELECT 'page:z', period, begin, 9, 1, 2 FROM buckets WHERE period = 'hour' LIMIT 1",
            "the minutes of the hour",
        ),
    ],
)
def test_what_is_damaged_differs(folder: Path, harm: str, said: str) -> None:
    damage(folder, harm)
    done = audit(folder)
    assert done.code == 1
    assert "1 of" in done.lines[0]
    assert "counters differ" in done.lines[0]
    (line,) = [line for line in done.out.splitlines() if line.startswith("DIFFERS")]
    assert said in line
    assert audit(folder, "page:b").code == 0
    told = [json.loads(line) for line in audit(folder, "--json").out.splitlines()]
    assert [one["verdict"] for one in told if "why" in one and said in one["why"]] == ["differs"]


def test_a_total_that_differs_is_said_too(folder: Path) -> None:
    damage(
        folder,
        "UPDATE shards SET count = count + 1 WHERE counter = 'page:a';"
        "UPDATE buckets SET count = count + 1 WHERE counter = 'page:a' AND period = 'day'",
    )
    (line,) = [line for line in audit(folder).out.splitlines() if line.startswith("DIFFERS")]
    assert "by +1: shards hold" in line
    assert "the minutes of the day" in line


def test_minutes_that_have_expired_are_not_missed(folder: Path) -> None:
    """Hours and days live longer."""
    before = summary(audit(folder, "--json"))["compared"]
    day = int(time.time()) // 86_400 * DAY - 5 * DAY
    values = ", ".join(f"('page:a', '{by}', {day}, 0, 5, 1)" for by in ("hour", "day"))
    damage(folder, f"INSERT INTO buckets VALUES {values}")
    done = audit(folder, "--json")
    assert (done.code, summary(done)["compared"]) == (0, before + 1)
    damage(folder, f"UPDATE buckets SET count = 6 WHERE period = 'hour' AND begin = {day}")
    assert "the hours of the day" in audit(folder).out


def test_what_is_kept_once_can_not_be_judged(folder: Path) -> None:
    damage(folder, "UPDATE buckets SET count = count + 1 WHERE counter = 'other:c'")
    assert audit(folder).code == 0


def test_what_began_under_other_rules_is_not_judged(folder: Path) -> None:
    """A flusher with other rules commits: what is of this day may lack hours, and that is no fault."""

    async def count_more() -> None:
        async with running(folder / ".countersink", windows=rules_of("page:=day/2y")) as service:
            await service.incr("page:a")
            await service.apply()

    asyncio.run(count_more())
    done = audit(folder, "--json")
    assert (done.code, summary(done)["compared"]) == (0, 0)

"""countersink audit: what it says of a file, with and without counts by time, and of what is wrong with it."""

import asyncio
import json
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from countersink_server.cli.audit import AGREES, DIFFERS, UNKNOWN, Ledger, Line, _horizon, flaw_of, judge
from shared.config.lists import rules_of
from shared.model.buckets import DAY, HOUR, NEVER, Instant, Millis, StoreMillis, WallSeconds
from shared.model.receipts import Tally, lifetime, notes_of_commit
from shared.model.words import Commit, Receipt
from shared.ports.store import Balance, Config, Shard, StoredReceipt
from tests.cli.running import Done, make_file, run, run_here
from tests.http.service import running
from tests.http.test_series import publish
from tests.world.manual_clock import ManualClock
from tests.world.memory.store import MemoryStore


def audit(folder: Path, *arguments: str) -> Done:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("countersink_server.cli.audit.ACKNOWLEDGED_WITHIN", 0.0)
        return run_here("audit", *arguments, COUNTERSINK_BROKER=f"sqlite:///{folder}/.countersink/countersink.db")


def summary(done: Done) -> Any:
    return json.loads(done.out.splitlines()[-1])


def differing(done: Done) -> str:
    """The line of the one counter that differs."""
    assert done.code == 1
    (line,) = [line for line in done.out.splitlines() if line.startswith("DIFFERS")]
    return line


@pytest.fixture
def db(tmp_path: Path) -> Any:
    """Of a file with three counters, as if flushers had written it."""
    make_file(tmp_path)
    with closing(sqlite3.connect(tmp_path / ".countersink" / "countersink.db", isolation_level=None)) as db:
        db.execute("UPDATE store SET now = ?", (int(time.time() * 1_000),))
        for number, sums in enumerate([{"a": 5, "b": -2}, {"a": 2**62, "c": 0}, {"a": 2**62}]):
            (note,) = notes_of_commit([""], f"c{number}", Tally(applied=len(sums)), sums)
            expires = int(time.time() * 1_000) + (-1 if number == 1 else 16) * DAY
            db.execute("INSERT INTO receipts VALUES (?, ?, 'applied', ?, ?)", (f"e{number}", expires, number, note))
            for name, delta in sums.items():
                db.execute("INSERT OR IGNORE INTO configs VALUES (?, 3)", (name,))
                db.execute("INSERT INTO shards (counter, shard, count) VALUES (?, ?, ?)", (name, number, delta))
        yield db


def test_a_new_file_agrees(tmp_path: Path) -> None:
    make_file(tmp_path)
    assert audit(tmp_path).said.splitlines()[0] == "counters: 0 agree, 0 differ, 0 can't be judged"


def test_what_agrees_is_counted_and_shown_when_it_is_asked_for(tmp_path: Path, db: Any) -> None:
    assert audit(tmp_path).said.splitlines()[0] == "counters: 3 agree, 0 differ, 0 can't be judged"
    rows = [line.split() for line in audit(tmp_path, "--all").said.splitlines()[:3]]
    assert rows == [["agrees", "a", str(2**63 + 5)], ["agrees", "b", "-2"], ["agrees", "c", "0"]]
    asked = audit(tmp_path, "b", "nobody").said.splitlines()
    assert [line.split() for line in asked[:2]] == [["agrees", "b", "-2"], ["agrees", "nobody", "0", "never", "seen"]]
    assert asked[2] == "counters: 2 agree, 0 differ, 0 can't be judged"


def test_what_was_swept_is_still_known(tmp_path: Path, db: Any) -> None:
    assert run("sweep", cwd=tmp_path).out == "1 expired receipt deleted\n"
    assert audit(tmp_path, "--all").said.split()[:3] == ["agrees", "a", str(2**63 + 5)]


@pytest.mark.parametrize(
    ("harm", "name", "said"),
    [
        ("UPDATE shards SET count = count + 1 WHERE counter = 'b'", "b", "by +1: shards hold -1, receipts say -2"),
        ("DELETE FROM shards WHERE counter = 'a' AND shard = 1", "a", f"by -{2**62}: shards hold"),
        ("DELETE FROM receipts WHERE key = 'e0'", "b", "by -2: shards hold -2, receipts say 0"),
        ("UPDATE configs SET num_shards = 1 WHERE counter = 'a'", "a", f"{2**63} of it in shards that readers do not"),
        ("DELETE FROM configs WHERE counter = 'b'", "b", "-2 of it in shards that readers do not look at"),
        ("DELETE FROM configs; DELETE FROM shards", "a", f"by -{2**63 + 5}: shards hold 0"),
    ],
)
def test_what_differs_is_said_and_fails(tmp_path: Path, db: Any, harm: str, name: str, said: str) -> None:
    db.executescript(harm)
    done = audit(tmp_path)
    assert done.code == 1
    assert "counters differ" in done.lines[0]
    (line,) = [line for line in done.out.splitlines() if line.split()[:2] == ["DIFFERS", name]]
    assert said in line
    assert audit(tmp_path, "c", "nobody").code == 0
    told = [json.loads(line) for line in audit(tmp_path, "--json").out.splitlines()]
    assert [one["verdict"] for one in told if one.get("name") == name] == ["differs"]


@pytest.mark.parametrize(
    ("taken", "said"), [(7, "7 increments were accepted and neither"), (-2, "2 increments were counted")]
)
def test_what_is_not_accounted_for_fails(tmp_path: Path, db: Any, taken: int, said: str) -> None:
    db.execute("UPDATE broker SET taken = taken + ?", (taken,))
    done = audit(tmp_path, "--json")
    assert (done.code, summary(done)["drift"]) == (1, taken)
    assert said in done.lines[0]


def test_json_is_one_object_a_line(tmp_path: Path, db: Any) -> None:
    told = [json.loads(line) for line in audit(tmp_path, "--json", "--all").out.splitlines()]
    assert told[1] == {"name": "b", "verdict": "agrees", "shards": -2, "receipts": -2, "unread": 0, "why": ""}
    assert told[3] == {
        "counters": {"agrees": 3, "differs": 0, "unknown": 0}, "applied": 5, "deduplicated": 0, "dead": 0,
        "receipts": 3, "pending": 0, "drift": 0, "compared": 0,
    }  # fmt: skip


def line(**its: Any) -> Line:
    return Line("a", said=5, held=5, unread=0, since=None, others=False)._replace(**its)


@pytest.mark.parametrize(
    ("its", "mark", "part"),
    [
        ({}, AGREES, ""),
        ({"since": 1.0, "others": True}, AGREES, ""),
        ({"held": 6}, DIFFERS, "by +1"),
        ({"held": 6, "since": 101.0}, DIFFERS, "by +1"),
        ({"held": 6, "since": 99.0}, UNKNOWN, "older than receipts live"),
        ({"held": 6, "since": 0.0}, UNKNOWN, "older"),
        ({"held": 6, "since": 101.0, "others": True}, UNKNOWN, "another program writes to it"),
        ({"unread": 2, "since": 1.0, "others": True}, DIFFERS, "2 of it in shards that readers do not look at"),
    ],
)
def test_the_verdict(its: dict[str, Any], mark: str, part: str) -> None:
    verdict = judge(line(**its), 100.0)
    assert verdict.mark == mark
    assert part in verdict.said


def test_a_store_that_does_not_know_all_says_what_else_it_may_be() -> None:
    said = judge(line(held=6, since=101.0), 100.0).said
    assert "by +1: shards hold 6, receipts say 5, unless another program wrote to it before we did" in said
    assert "COUNTERSINK_RETENTION raised?" in said
    assert "unless" not in judge(line(held=6), 100.0).said


def test_what_differs_is_not_said_to_be_accounted_for(tmp_path: Path, db: Any) -> None:
    db.execute("UPDATE shards SET count = 0")
    out = audit(tmp_path).out
    assert "2 differ" in out
    assert out.endswith("pending: 0 increments; drift 0: no increment is missing\n")


@pytest.mark.parametrize(
    ("pending", "drift", "well"),
    [(0, 0, True), (5, -5, True), (5, 0, True), (5, -6, False), (5, 1, False), (0, -1, False)],
)
def test_between_a_commit_and_its_acks_so_much_may_be_missing(pending: int, drift: int, well: bool) -> None:
    assert (flaw_of(Balance(pending, drift)) == "") is well


@pytest.mark.parametrize("behind", [0.0, 7_200.0, -7_200.0])
async def test_by_a_clock_that_is_behind_nothing_is_judged_that_may_have_expired(behind: float) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    longest = lifetime(Millis(8 * DAY), of_client=True)
    await store.apply(Commit((Receipt("k", StoreMillis(int(clock.now() * 1_000) + longest)),), ()))
    right = clock.now() - (9 * DAY - HOUR) / 1_000
    parts: Any = SimpleNamespace(clock=ManualClock(clock.now() - behind), store=store)
    assert await _horizon(parts, lifetime(Millis(8 * DAY), of_client=False)) == right


def test_writes_of_others_are_known_by_their_time() -> None:
    """As far as the receipts of that time must still be there."""
    with closing(Ledger((), written_since=10)) as ledger:
        (note,) = notes_of_commit([""], "c", Tally(), {"ours": 1})
        ledger.take_receipts(
            [
                StoredReceipt(Receipt("k", NEVER, "applied", note), Instant(11)),
                StoredReceipt(Receipt("l", NEVER), Instant(12)),
            ]
        )
        ledger.take_configs([Config(name, 1, 0, WallSeconds(1.0)) for name in ("ours", "theirs", "old")])
        ledger.take_shards(
            [Shard("ours", 0, 1, Instant(11)), Shard("theirs", 0, 1, Instant(12)), Shard("old", 0, 1, Instant(9))]
        )
        assert {line.counter: line.others for line in ledger.lines()} == {"ours": False, "theirs": True, "old": False}


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
    assert summary(audit(folder, "--json"))["compared"] >= 6
    assert summary(audit(folder, "--json", "other:c"))["compared"] == 0
    assert "hours and days compared with the shorter periods in them" in audit(folder).said


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
    assert re.search("1 of .*counters differ", done.lines[0])
    assert said in differing(done)
    assert audit(folder, "page:b").code == 0
    told = [json.loads(line) for line in audit(folder, "--json").out.splitlines()]
    assert [one["verdict"] for one in told if "why" in one and said in one["why"]] == ["differs"]


def test_a_total_that_differs_is_said_too(folder: Path) -> None:
    damage(
        folder,
        "UPDATE shards SET count = count + 1 WHERE counter = 'page:a';"
        "UPDATE buckets SET count = count + 1 WHERE counter = 'page:a' AND period = 'day'",
    )
    line = differing(audit(folder))
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

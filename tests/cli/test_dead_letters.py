"""The commands on dead letters, on a SQLite file with a rule against some counters."""

import asyncio
import contextlib
import json
import sqlite3
from argparse import Namespace
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from countersink_server.cli.dead_letters import _replay
from flusher.dead_letters.desk import LetterPass
from flusher.service import make_flusher
from shared.config.settings import Settings
from shared.memory import ProcessOverlay
from shared.model.buckets import Instant, StoreMillis
from shared.model.receipts import key_of_envelope
from shared.model.words import Commit, Entry, Envelope, Increment, Message, Receipt
from shared.runtime.clock import SystemClock
from shared.runtime.retry import Stop
from shared.sqlite.broker import SqliteDeadLetters
from shared.wire.codec import encode
from shared.wiring.process import Parts, connect
from tests.cli.running import Done, make_file, run

RULE = (
    "CREATE TRIGGER rule BEFORE INSERT ON shards WHEN NEW.counter LIKE 'poison%'"
    " BEGIN SELECT RAISE(ABORT, 'no poison'); END"
)


def file_of(folder: Path) -> Path:
    return folder / ".countersink" / "countersink.db"


def execute(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(file_of(folder), isolation_level=None)) as db:
        db.execute(statement)


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Parts]:
    parts = connect(Settings(broker=f"sqlite:////{file_of(folder)}"))
    try:
        yield parts
    finally:
        await parts.close()


async def flushed(folder: Path, *messages: Message) -> None:
    """Published, and flushed until nothing waits."""
    settings = Settings(broker=f"sqlite:////{file_of(folder)}", flush_interval=0.0)
    parts = connect(settings)
    stop = Stop()
    running = asyncio.create_task(make_flusher(parts, settings).run(stop, 5.0))
    await parts.publisher.publish(messages)
    with closing(sqlite3.connect(file_of(folder))) as db:
        while db.execute("SELECT count(*) FROM messages WHERE buried IS NULL").fetchone() != (0,):
            await asyncio.sleep(0.01)
    stop.set()
    await running
    await parts.close()


POISON = Envelope("p-1", {"poison": 5, "a": 2}, {"poison": 3}, (Increment("a", 10, "an id"),), 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three messages: one is counted, one is refused, one is nonsense."""
    make_file(tmp_path)
    execute(tmp_path, RULE)
    asyncio.run(flushed(tmp_path, encode(Envelope("e", {"a": 1})), encode(POISON), Message(b"\x1b[31m\n")))
    return tmp_path


def dlq(folder: Path, *arguments: str) -> Done:
    return run("dlq", *arguments, cwd=folder)


def total(folder: Path, counter: str) -> int:
    with closing(sqlite3.connect(file_of(folder))) as db:
        (value,) = db.execute("SELECT coalesce(sum(count), 0) FROM shards WHERE counter = ?", (counter,)).fetchone()
    return int(value)


def test_a_list_says_what_each_is_and_why(folder: Path) -> None:
    for _ in range(2):
        poison, nonsense, count = dlq(folder, "list").said.splitlines()
        assert poison.startswith("2  20")
        assert "5 increments: poison +5, a +12" in poison
        assert "no poison" in poison
        assert nonsense.startswith("3  20")
        assert "nothing that can be read  (the data is not valid JSON" in nonsense
        assert count == "2 dead letters"
    assert dlq(folder, "list", "--limit", "1").said.splitlines()[1:] == [
        "1 dead letter, and there are more: --limit shows them"
    ]


def test_a_list_as_json_is_a_letter_a_line(folder: Path) -> None:
    done = dlq(folder, "list", "--json")
    poison, nonsense = map(json.loads, done.out.splitlines())
    assert {name: poison[name] for name in ("id", "receipt", "state", "increments", "counters", "flaw")} == {
        "id": "2", "receipt": "p-1", "state": "dead", "increments": 5, "counters": {"poison": 5, "a": 12},
        "flaw": None,
    }  # fmt: skip
    assert "no poison" in poison["reason"]
    assert (nonsense["state"], nonsense["receipt"], nonsense["counters"]) == ("unreadable", None, {})


@pytest.mark.parametrize("name", ["2", "p-1"])
def test_show_says_all_of_one(folder: Path, name: str) -> None:
    out = dlq(folder, "show", name).said
    assert "  poison +5  dead\n" in out
    assert "  a +10 under the id an id  dead\n" in out
    assert "receipt     p-1\n" in out
    assert "attribute   ce-id=p-1\n" in out
    shown = json.loads(dlq(folder, "show", name, "--json").out)
    assert json.loads(shown["data"])["counters"] == {"poison": 5, "a": 2}


def test_nothing_shown_is_obeyed_by_a_terminal(folder: Path) -> None:
    out = dlq(folder, "show", "3").said
    assert "\x1b" not in out
    assert "data        \\x1b[31m\\n" in out


def test_a_replay_counts_what_can_be_counted_and_leaves_the_rest(folder: Path) -> None:
    code, out, (line,) = dlq(folder, "replay", "--all")
    assert code == 1
    assert line == f"countersink: 2 dead letters are left, for the reasons above ({file_of(folder)})"
    assert "2  5 increments left: the sum does not fit into the file: no poison\n" in out
    assert out.endswith("increments: 0 counted, 0 counted before, 5 left\n")
    execute(folder, "DROP TRIGGER rule")
    counted = "2  5 increments counted\nincrements: 5 counted, 0 counted before, 0 left\n"
    assert dlq(folder, "replay", "2").said == counted
    assert (total(folder, "poison"), total(folder, "a")) == (5, 13)
    code, out, (line,) = dlq(folder, "replay", "2")
    assert code == 1
    assert line.startswith("countersink: 2: not found: already replayed or dropped, or never a dead letter")
    assert dlq(folder, "replay", "--all").code == 1
    assert dlq(folder, "list").out.splitlines()[1:] == ["1 dead letter"]
    assert (total(folder, "poison"), total(folder, "a")) == (5, 13)


def test_replays_and_drops_are_told_as_json(folder: Path) -> None:
    done = dlq(folder, "replay", "--all", "--json")
    *letters, summary = map(json.loads, done.out.splitlines())
    assert summary == {"counted": 0, "already": 0, "left": 5, "letters_left": 2}
    assert {letter["id"] for letter in letters} == {"2", "3"}
    assert letters[0].keys() == {"id", "counted", "already", "dropped", "left", "why"}
    (dropped,) = map(json.loads, dlq(folder, "drop", "2", "--json").out.splitlines())
    assert (dropped["id"], dropped["increments"]) == ("2", 5)


def test_the_receipt_of_a_batch_names_its_letters(folder: Path) -> None:
    """Its other envelopes were counted, or wait."""
    assert dlq(folder, "show", "e.p-1").said.startswith("id          2\n")
    execute(folder, "DROP TRIGGER rule")
    (line,) = dlq(folder, "replay", "e.p-1", "no.such").lines
    assert line.startswith("countersink: no.such: not found: already replayed or dropped, or never a dead letter")
    assert total(folder, "poison") == 5


async def test_what_is_dropped_is_given_up_for_good(folder: Path) -> None:
    code, out, (line,) = dlq(folder, "drop", "3", "17", "e.p-1")
    assert code == 1
    assert line.startswith("countersink: 17: not found")
    assert out.splitlines() == ["2  5 increments dropped: poison +5, a +12", "3  dropped; it was unreadable"]
    assert dlq(folder, "list").out == "no dead letters\n"
    async with opened(folder) as parts:
        views = await parts.overlay.view(["poison", "a"])
        assert [view.entries for view in views.values()] == [(), ()]
        assert parts.balance
        assert parts.balance()[:2] == (0, 0)
        kept = await parts.store.receipts([key_of_envelope("p-1")])
        assert [receipt.state for receipt in kept.found.values()] == ["dropped"]
        assert await parts.store.dead("", 10) == []
    told = json.loads(run("audit", "--json", cwd=folder).out.splitlines()[-1])
    assert (told["applied"], told["dead"]) == (1, 5)


async def test_what_is_dropped_leaves_an_overlay_that_is_apart_before_the_letter_goes(folder: Path) -> None:
    """Killed in between, or with Redis away, it can be dropped again."""
    overlay = ProcessOverlay(SystemClock())
    async with overlay.entered([POISON]):
        pass
    async with opened(folder) as parts:
        desk = LetterPass(parts.letters(), replace(parts, overlay=overlay), Settings())
        (letter, _) = await desk.pull()
        left: list[Entry] = []
        ack = desk.letters.ack

        async def look(tokens: Sequence[str], floor: Instant) -> None:
            left.extend((await overlay.view(["poison"]))["poison"].entries)
            await ack(tokens, floor)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(desk.letters, "ack", look)
            assert (await overlay.view(["poison"]))["poison"].entries
            await desk.drop(letter)
        assert left == []
    assert len(dlq(folder, "list").out.splitlines()) == 2


async def test_an_id_that_was_counted_before_is_not_said_to_be_given_up(folder: Path) -> None:
    execute(folder, "DROP TRIGGER rule")
    await flushed(folder, encode(Envelope("f", {}, {}, (Increment("a", 10, "an id"),))))
    assert dlq(folder, "drop", "2").out == "2  4 increments dropped: poison +5, a +2\n"


async def test_what_was_counted_before_is_not_said_to_be_given_up(folder: Path) -> None:
    """A replay counted it, and was killed before it forgot the letter."""
    execute(folder, "DROP TRIGGER rule")
    async with opened(folder) as parts:
        floor = await parts.store.apply(Commit((), (), (Receipt(key_of_envelope("p-1"), StoreMillis(1 << 60)),)))
        assert dlq(folder, "drop", "p-1").out.endswith("  removed; nothing was left to drop\n")
        assert (await parts.overlay.view(["a"]))["a"].floor >= floor


def test_what_the_broker_has_lost_is_listed_replayed_and_dropped_by_its_receipt(folder: Path) -> None:
    """The letter of it is gone; what it stands for is in the store."""
    asyncio.run(flushed(folder, encode(Envelope("p-2", {"poison": 7}))))
    execute(folder, "DELETE FROM messages")
    keys = {name: key_of_envelope(name) for name in ("p-1", "p-2")}
    listed = dlq(folder, "list").out.splitlines()
    assert listed[2] == "2 dead letters"
    assert any(line.startswith(keys["p-1"]) and "5 increments: a +12, poison +5" in line for line in listed)
    shown = dlq(folder, "show", "p-1").out
    assert "  poison +5  dead\n" in shown
    assert "reason      the sum does not fit into the file: no poison\n" in shown
    assert "the store keeps what it counts" in shown
    assert dlq(folder, "drop", "p-2").out == f"{keys['p-2']}  1 increment dropped: poison +7\n"
    assert dlq(folder, "replay", keys["p-1"]).code == 1
    execute(folder, "DROP TRIGGER rule")
    assert dlq(folder, "replay", "p-1").out.startswith(f"{keys['p-1']}  5 increments counted\n")
    assert (total(folder, "poison"), total(folder, "a")) == (5, 13)
    assert dlq(folder, "list").out == "no dead letters\n"


def test_a_letter_that_is_dropped_holds_back_no_receipts(folder: Path) -> None:
    expired = "INSERT INTO receipts (key, expires, state, time) VALUES ('old', {}, 'applied', 1)"
    execute(folder, expired.format(1))
    execute(folder, "UPDATE messages SET since = 0")
    assert run("sweep", cwd=folder).out == "0 expired receipts deleted\n"
    assert dlq(folder, "drop", "2", "3").code == 0
    assert run("sweep", cwd=folder).out == "1 expired receipt deleted\n"


@pytest.mark.parametrize(("complete", "more"), [(True, ""), (False, "; Pub/Sub does not say how many there are")])
async def test_a_replay_of_all_says_if_it_can_not_know_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], complete: bool, more: str
) -> None:
    for table in ("messages", "bodies", "dead"):
        execute(folder, f"DELETE FROM {table}")
    monkeypatch.setenv("COUNTERSINK_BROKER", f"sqlite:///{file_of(folder)}")
    monkeypatch.setattr(SqliteDeadLetters, "complete", complete)
    await _replay(Namespace(ids=[], all=True, too_old=False, data=None, json=False))
    assert f"increments: 0 counted, 0 counted before, 0 left{more}" in capsys.readouterr().out


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    for arguments in (("show", "1"), ("replay", "--all"), ("drop", "1")):
        said = dlq(tmp_path, *arguments, "--data", "no where").refusal
        assert "countersink.db does not exist. Is the path right, and is its volume mounted?" in said
        assert "`countersink up --data 'no where'` makes a new one" in said
    assert [*tmp_path.iterdir()] == []
    make_file(tmp_path)
    assert dlq(tmp_path, "list").said == "no dead letters\n"
    assert dlq(tmp_path, "replay", "--all").said == "increments: 0 counted, 0 counted before, 0 left\n"
    assert dlq(tmp_path, "show", "17").code == 1
    for wrong in ("", "replay", "replay 1 --all", "list --limit 0", "show", "drop", "drop --all"):
        assert dlq(tmp_path, *wrong.split()).code == 2

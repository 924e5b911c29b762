"""Which readings and last values break a promise, who of the clients reads, and which requests have failed."""

import asyncio
import io
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from countersink import Client, Counter
from countersink.answers import UnavailableError
from countersink.transport import Request, Transport
from countersink_server.check.ledger import MOST_WRONG, History, Ledger, Verdict, judged
from countersink_server.check.load import HASTY, Load
from countersink_server.cli import check
from shared.model.errors import CountersinkError
from tests.unit.client.scripted import serving


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(History(None))


def read(ledger: Ledger, value: int, *, exact: bool = True) -> bool:
    """Whether the reading is right. It begins and ends now."""
    wrong = ledger.wrong
    ledger.saw(ledger.looks(["a"]), "a", value, exact=exact)
    return ledger.wrong == wrong


def test_a_reading_has_what_was_accepted_and_may_have_what_is_under_way(ledger: Ledger) -> None:
    ledger.accepted(ledger.sends({"a": 3}))
    ledger.sends({"a": 2})
    assert [read(ledger, value) for value in (2, 3, 4, 5, 6)] == [False, True, True, True, False]


def test_what_is_accepted_while_a_read_is_under_way_may_be_missing(ledger: Ledger) -> None:
    look = ledger.looks(["a"])
    ledger.accepted(ledger.sends({"a": 3}))
    ledger.saw(look, "a", 0, exact=True)
    assert ledger.wrong == 0


def test_what_was_shown_stays_shown(ledger: Ledger) -> None:
    before = ledger.looks(["a"])
    ledger.sends({"a": 3})
    assert read(ledger, 3)
    assert not read(ledger, 0)
    ledger.saw(before, "a", 0, exact=True)
    assert ledger.wrong == 1, "it began before"


def test_what_was_refused_must_not_count_and_what_is_unclear_may(ledger: Ledger) -> None:
    ledger.refused(ledger.sends({"a": 3}))
    ledger.unclear(ledger.sends({"a": 2}))
    assert [read(ledger, value) for value in (0, 2, 3)] == [True, True, False]


def test_a_reading_that_claims_nothing_is_not_judged(ledger: Ledger) -> None:
    ledger.accepted(ledger.sends({"a": 3}))
    assert read(ledger, 0, exact=False)
    assert read(ledger, 99, exact=False)
    assert (ledger.exact, ledger.inexact) == (0, 2)


def test_few_examples_are_kept(ledger: Ledger) -> None:
    for _ in range(MOST_WRONG + 5):
        assert not read(ledger, 1)
    assert (len(ledger.examples), ledger.wrong) == (MOST_WRONG, MOST_WRONG + 5)


def test_losses_and_doubles_of_different_counters_do_not_cancel_out(ledger: Ledger) -> None:
    ledger.accepted(ledger.sends({"a": 3, "b": 3, "c": 1}))
    ledger.unclear(ledger.sends({"c": 4}))
    assert judged(ledger.sums, {"a": 1, "b": 5, "c": 5}) == Verdict(7, 4, 11, lost=2, doubled=2)
    assert judged(ledger.sums, {"a": 3, "b": 3}) == Verdict(7, 4, 6, lost=1, doubled=0)


def test_a_history_has_a_line_at_each_end() -> None:
    file = io.StringIO()
    ledger = Ledger(History(file))
    ledger.accepted(ledger.sends({"a": 3}))
    assert read(ledger, 3)
    lines = [line.split(", ", 2)[2] for line in file.getvalue().splitlines()]
    assert lines == [
        ':type :invoke, :f :add, :value ["a" 3], :process 1}',
        ':type :ok, :f :add, :value ["a" 3], :process 1}',
        ':type :invoke, :f :read, :value ["a" nil], :process 2}',
        ':type :ok, :f :read, :value ["a" 3], :process 2}',
    ]


def test_a_service_that_does_not_come_back_is_told_with_what_it_accepted(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.accepted(ledger.sends({"check:0": 1_000}))
    monkeypatch.setattr(check, "APPLIED_WITHIN", 0.01)
    with Client("http://127.0.0.1:1", patience=0.01) as client, pytest.raises(CountersinkError) as failed:
        check._settled(client, ["check:0", "check:1"], ledger)
    said = str(failed.value)
    assert re.search(r"^not everything was applied within 0.01 s after the load \(.*\?\)\. countersink doctor", said)
    assert "1,000 were accepted, and 0 exact readings were wrong. Its counters remain: check:0 to check:1" in said


class Later(Client):
    """A service with several ingests and no Redis: its readings are not exact, and lack what the others hold."""

    asked = 0

    def get_many(self, names: Iterable[str], *, max_age: float | None = None) -> list[Counter]:
        self.asked += 1
        value = min(self.asked, 3)
        return [Counter(name, value, value, 0, False, datetime.now(UTC), 1, True) for name in names]

    def delete(self, name: str, **_: Any) -> Any:
        raise UnavailableError(f"{name} can't be read exactly")


def test_without_exact_readings_it_waits_for_what_is_missing_but_not_to_delete(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.accepted(ledger.sends({"a": 3}))
    monkeypatch.setattr(check, "IF_WRONG", 0.01)
    with Later("http://127.0.0.1:1") as client:
        assert check._settled(client, ["a"], ledger) == {"a": 3}
        left = check._delete(client, ["a"], ledger)
    assert left.startswith("its counters remain (no counter was deleted within 0.01 s")


@pytest.mark.parametrize(("clients", "readers"), [(2, 1), (3, 1), (4, 1), (7, 1), (8, 2)])
def test_a_quarter_reads_and_at_least_one(
    clients: int, readers: int, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[bool] = []
    monkeypatch.setattr(Load, "_client", lambda _, its: reads.append(its))
    nowhere: Any = None
    Load(nowhere, ledger, "x").run(0, clients, lambda: None)
    assert (len(reads), sum(reads)) == (clients, readers)


async def test_what_is_abandoned_on_purpose_has_not_failed() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    def attempt(url: str, seconds: float) -> tuple[int, int]:
        transport = Transport(url, {}, None)
        load = Load(lambda: transport, Ledger(History(None)), "x")
        with pytest.raises(UnavailableError):
            load._attempt(transport, Request("GET", "/v1/counters/a"), seconds)
        transport.close()
        return load.abandoned, load.failures

    async with serving(silent) as url:
        assert await asyncio.to_thread(attempt, url, HASTY) == (1, 0)
        assert await asyncio.to_thread(attempt, url, 2 * HASTY) == (0, 1)
    assert await asyncio.to_thread(attempt, "http://127.0.0.1:1", HASTY) == (0, 1)

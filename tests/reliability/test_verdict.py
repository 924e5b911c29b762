"""The verdict sees what is lost, doubled, or nobody's; the table shows it; a row that failed says why."""

from tests.http.fuzz.run import Tally
from tests.processes.fleet.truth import Truths
from tests.reliability.__main__ import NAMES
from tests.reliability.document import document, failures, table
from tests.reliability.rows import SQLITE, Result
from tests.reliability.table import ROWS
from tests.reliability.verdict import Verdict, judge


def test_each_increment_is_known_by_itself() -> None:
    truths = Truths(spread=1)
    one, other, unanswered = (truths.next(0) for _ in range(3))
    for counter, bit, _ in (one, other):
        truths.answer(counter, bit)
    name = one[0]
    assert judge(truths, {name: 1 + 4}) == Verdict(accepted=2, counted=2, lost=0, doubled=0, unknown=0)
    assert judge(truths, {name: 1 + 4 + 16}) == Verdict(accepted=2, counted=3, lost=0, doubled=0, unknown=0)
    assert judge(truths, {name: 4 + 16}) == Verdict(accepted=2, counted=2, lost=1, doubled=0, unknown=0)
    assert judge(truths, {name: 1 + 4 + 4}) == Verdict(accepted=2, counted=2, lost=0, doubled=1, unknown=0)
    assert judge(truths, {name: 1 + 4 + 64}) == Verdict(accepted=2, counted=2, lost=0, doubled=0, unknown=1)
    assert judge(truths, {}) == Verdict(accepted=2, counted=0, lost=2, doubled=0, unknown=0)
    assert unanswered[2] == 16


def test_a_row_is_a_line_and_what_was_wrong_is_named() -> None:
    row = ROWS[0]
    good = Result(row, SQLITE, seconds=60, accepted=1_234, counted=1_235, errors={"503": 7}, recovered=1.5, peak=2**26)
    *_, line = table([good]).splitlines()
    assert line.startswith(f"| `{row.name}`: {row.fault} | SQLite |")
    assert "| 1,234 | 1,235 | 0 | 0 |" in line
    assert line.endswith("| 503: 7 | 1.5 s | 64 MiB |")
    assert not failures([good])
    assert failures([Result(row, SQLITE, wrong=["1 increments lost"])]) == [f"{row.name} on SQLite: 1 increments lost"]


def test_the_document_says_what_the_fuzzer_did_if_it_ran() -> None:
    tally = Tally(plans=1_234, requests=5_678, fast=9, inputs=10, failed=0, seconds=60)
    assert "\n1,234 connections with 5,678 requests, 9 of them" in document([], tally)
    assert "fuzz` generates" not in document([], None)


def test_each_row_has_a_name_of_its_own() -> None:
    assert len({*NAMES}) == len(NAMES)

"""countersink plan: a table for people, an object for programs, and advice for wrong arguments."""

import json
import re
from typing import Any

import pytest

from tests.cli.running import Done, run_here
from tests.meta.checkout import ROOT


def plan(*arguments: str, **settings: str) -> Done:
    return run_here("plan", *arguments, cwd=None, **settings)


def said(*arguments: str, **settings: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan(*arguments, "--json", **settings).said)
    return found


def test_people_get_a_table_that_says_what_was_measured() -> None:
    shown = plan("--rate", "5000", "--counters", "1000").said
    lines = shown.splitlines()
    assert lines[0] == "traffic: 5,000 increments/s, counters: 1,000, no ids"
    assert lines[1] == "ingests: 2, flushers: 2, envelopes/s: 20"
    assert lines[3].split() == ["while", "read", "while", "unread", "Google's", "example", "Bigtable", "Redis", "alone"]
    (operations,) = [line.split() for line in lines if line.startswith("operations per million")]
    assert operations[-3:] == ["3,000,000", "1,000,000", "0"]
    for words in ("15,552 - 38,880", "Measured:", "Assumed:", "arithmetic", "Not in it:", "Redis alone: when it dies"):
        assert words in shown
    assert max(map(len, lines)) <= 110
    assert "while unread" not in plan("--rate", "5000", "--interval", "2").out


def test_the_page_on_sizing_shows_what_the_command_says() -> None:
    page = (ROOT / "docs" / "sizing.md").read_text()
    (arguments,) = re.findall(r"^\.venv/bin/countersink plan (.*)$", page, re.MULTILINE)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert plan(*arguments.split()).out.startswith(shown)


def test_it_says_what_the_largest_cost() -> None:
    """Three reads for each of them and for those that may be among them, and for the questions."""
    quiet, busy = ("--rate", "0.01", "--counters", "1000"), ("--rate", "5000", "--counters", "1000")
    assert said(*quiet, "--top", "10")["top"]["reads"] == pytest.approx(3 * 11 + 4, abs=4)
    top = said(*busy, "--top", "10", "--top-every", "60")["top"]
    assert top["reads"] == pytest.approx(3 * 20 + 4, abs=30)
    reads = top["reads"] * 30 * 86_400 / 60 / 100_000
    assert top["dollars_a_month"] == pytest.approx([0.03 * reads, 0.06 * reads], rel=0.01)
    assert f"each 60 s while read: {top['reads']:,} reads" in plan(*busy, "--top", "10", "--top-every", "60").out
    assert "top" not in said(*busy)


def test_programs_get_an_object() -> None:
    found = said("--rate", "5000", "--ingests", "1", "--flushers", "1")
    assert (found["rate"], found["ingests"], found["flushers"], found["overlay"]) == (5000, 1, 1, "memory")
    read, unread = found["while_read"], found["while_unread"]
    assert (read["interval"], unread["interval"]) == (1, 10)
    assert read["operations_per_million"] == pytest.approx(4_400, rel=0.02)
    assert unread["operations_per_million"] == pytest.approx(4_250, rel=0.02)
    assert found["original"]["dollars_a_month"] == [15_552, 38_880]
    assert found["redis"]["operations_per_million"] == 0
    assert [found[way]["shards"] for way in ("while_read", "original", "redis")] == [1, 5_000, None]
    assert (read["applied_within_seconds"], read["others_see_within_seconds"]) == (1.1, 2.1)
    assert (unread["applied_within_seconds"], unread["others_see_within_seconds"]) == (10.1, 11.1)
    assert found["too_few"] == []


def test_telling_others_costs_more() -> None:
    arguments = ("--rate", "1000", "--counters", "100")
    feed = {"COUNTERSINK_FEED": "page:=1m,=10m", "COUNTERSINK_FEED_TO": "https://example.com/hook"}
    all_of_it = feed | {"COUNTERSINK_THRESHOLDS": "quota:=at 7"}
    assert said(*arguments, **feed)["feed"] == {"told_every": 60, "thresholds": False}
    found = [said(*arguments, **settings)["while_read"] for settings in ({}, feed, all_of_it)]
    writes, reads, deletes = ([one[f"{name}_per_second"] for one in found] for name in ("writes", "reads", "deletes"))
    shards = writes[0] - deletes[0]
    assert [writes[1] - writes[0], writes[2] - writes[1]] == pytest.approx([shards + 100 / 60, shards], abs=0.01)
    assert [deletes[1] - deletes[0], deletes[2] - deletes[1]] == pytest.approx([100 / 60, shards], abs=0.01)
    assert reads == sorted(reads)
    assert "The feed is in it" in plan(*arguments, **feed).out


def test_settings_prices_and_options_count() -> None:
    arguments = ("--rate", "5000", "--counters", "1000")
    first = said(*arguments)
    assert said(*arguments, "--interval", "10") == said(*arguments, COUNTERSINK_FLUSH_INTERVAL="10")
    assert said(*arguments)["while_unread"] == said(*arguments, "--interval", "10")["while_read"]
    assert said(*arguments, "--overlay", "redis") == said(*arguments, COUNTERSINK_OVERLAY="redis://localhost")
    assert said(*arguments, "--overlay", "redis")["while_read"]["others_see_within_seconds"] == 0
    ids = said(*arguments, "--ids", "each")["while_read"]
    assert ids["deletes_per_second"] - first["while_read"]["deletes_per_second"] == pytest.approx(5_000)
    batches = said(*arguments, "--ids", "batch", "--batch", "100")
    assert batches["envelopes_per_second"] == 50
    free = ("--price-write", "0", "--price-read", "0", "--price-delete", "0.5")
    deletes = first["while_read"]["deletes_per_second"]
    dollars = pytest.approx(deletes * 2_592_000 / 100_000 * 0.5, abs=0.01)
    assert said(*arguments, *free)["while_read"]["dollars_a_month"] == [dollars, dollars]


def test_too_few_processes_are_named() -> None:
    arguments = ("--rate", "50000", "--ids", "each", "--ingests", "1", "--flushers", "1")
    ingests, flushers = said(*arguments)["too_few"]
    assert ingests == "Too few ingests: each gets 50,000 increments/s, and takes about 20,000."
    assert flushers.startswith("Too few flushers: each has to write 50,")
    assert ingests in plan(*arguments).out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "the following arguments are required: --rate"),
        (("--rate", "0"), "--rate: must be a number of increments per second from 0.001 to 10,000,000, is '0'"),
        (("--rate", "nan"), "--rate: must be a number of increments per second from 0.001 to 10,000,000, is 'nan'"),
        (("--rate", "1", "--counters", "0"), "--counters: must be a whole number from 1 to 1000000000, is '0'"),
        (("--rate", "1", "--ids", "some"), "--ids: invalid choice: 'some' (choose from 'none', 'batch', 'each')"),
        (("--rate", "1", "--batch", "10"), "--batch: only with --ids batch, where each batch has an id"),
        (("--rate", "1", "--interval", "61"), "--interval: must be at most 60 seconds, is '61'"),
        (
            ("--rate", "1", "--price-read", "0.2-0.1"),
            "--price-read: must be dollars up to 1000, such as 0.06 or, lowest first, 0.06-0.18, is '0.2-0.1'",
        ),
        (("--rate", "1", "--data", "d"), "--data: this command only calculates: it needs no service and no data"),
    ],
    ids=str,
)
def test_wrong_arguments_are_explained(arguments: tuple[str, ...], why: str) -> None:
    done = plan(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.lines[-1].startswith("countersink plan: error: ")
    assert done.lines[-1].endswith(why)

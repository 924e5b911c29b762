"""The bill of docs/comparison.md is what `countersink plan` calculates, and others' figures are arithmetic."""

import json
import re
from typing import Any, Final

import pytest

from countersink_server.cli.main import parser_of_all
from tests.meta.checkout import ROOT

PAGE: Final = (ROOT / "docs" / "comparison.md").read_text()
README: Final = (ROOT / "README.md").read_text()
BILL: Final = dict(
    re.findall(r"^\| \**([^|]+?)\** \| (.+) \|$", PAGE.partition("## What a month costs")[2], re.MULTILINE)
)
RATES: Final = (10, 1_000, 100_000)
SECONDS: Final = 30 * 24 * 3_600


def plan(capsys: pytest.CaptureFixture[str], rate: float, counters: int = 20, ids: str = "none") -> Any:
    options = parser_of_all().parse_args(
        ["plan", "--rate", str(rate), "--counters", str(counters), "--ids", ids, "--json"]
    )
    options.run(options)
    return json.loads(capsys.readouterr().out)


def dollars(low: Any, high: Any) -> str:
    """From the lower of one to the higher of the other."""
    return f"${low['dollars_a_month'][0]:,.0f} - ${high['dollars_a_month'][1]:,.0f}"


def test_our_bill_is_that_of_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plans = [plan(capsys, rate) for rate in RATES]
    with_ids = [plan(capsys, rate, ids="each") for rate in RATES]
    ours = [dollars(one["while_unread"], one["while_read"]) for one in plans]
    assert BILL["Countersink on Datastore"].split(" | ") == ours
    ids = [dollars(one["while_unread"], one["while_read"]) for one in with_ids]
    assert BILL["the same, each increment with an id"].split(" | ") == ids
    originals = [dollars(one["original"], one["original"]) for one in plans]
    assert BILL["Google's example of a sharded counter"].split(" | ") == originals
    nodes = [one["bigtable"]["nodes"] for one in plans]
    assert BILL["Bigtable"].split(" | ") == [f"{one} node{'s' if one > 1 else ''}" for one in nodes]
    assert [one["ingests"] + one["flushers"] for one in plans] == [4, 4, 7]
    many = plan(capsys, 1_000, counters=1_000)
    assert dollars(many["while_unread"], many["while_read"]) in PAGE
    small = plan(capsys, 50)
    assert dollars(small["while_unread"], small["while_read"]) in README


def test_the_bill_of_dynamodb_is_arithmetic() -> None:
    once = [f"${rate * SECONDS / 1e6 * 0.625:,.0f}" for rate in RATES]
    assert BILL["DynamoDB, on demand"].split(" | ") == once
    assert BILL["the same, in transactions with a token"].split(" | ") == ["$32", "$3,240", "$324,000"]

"""The table in BigQuery: Terraform's files are right, and what the feed publishes fits into the table."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from countersink_server.cli.main import parser_of_all
from shared.model.buckets import Instant, WallSeconds
from shared.model.feed import Change, Levels, Reach, changed, reached
from shared.pubsub.publisher import message_of
from tests.deploy.programs import run
from tests.deploy.test_terraform import SCRIPT, Block, all_flaws
from tests.meta.checkout import ROOT
from tests.needs import program

FOLDER: Final = ROOT / "deploy" / "bigquery"
TYPES: Final[dict[str, Callable[[Any], object]]] = {
    "STRING": lambda value: type(value) is str,
    "INTEGER": lambda value: type(value) is int and -(2**63) <= value < 2**63,
    "TIMESTAMP": lambda value: re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}Z", value),
}
"""What BigQuery takes for a column, of the types that the table has."""
SEQUENCE: Final = re.compile(r"[0-9A-Fa-f]{1,16}(/[0-9A-Fa-f]{1,16}){0,3}")
"""BigQuery compares its parts as numbers."""


@pytest.fixture(scope="module")
def files(node_packages: Path) -> Block:
    (found,) = json.loads(run(program("node"), "-e", SCRIPT, FOLDER, cwd=node_packages))
    return dict(found)


def one(files: Block, kind: str) -> Block:
    ((block,),) = files["resource"][kind].values()
    return dict(block)


def test_the_provider_has_each_argument(files: Block) -> None:
    assert not all_flaws(files)
    del files["resource"]["google_pubsub_topic"]
    assert "there is no google_pubsub_topic.feed" in all_flaws(files)


def test_what_changed_fits_into_the_table_and_replaces_what_is_older(files: Block) -> None:
    table = one(files, "google_bigquery_table")
    text = re.sub(r"(\w+) = ", r'"\1": ', table["schema"].removeprefix("${jsonencode(").removesuffix(")}"))
    columns = {column["name"]: column["type"] for column in json.loads(re.sub(r",(\s*])", r"\1", text))}
    sent: list[dict[str, Any]] = []
    for at, value in ((2**20, 7), (2**52, -(2**62))):
        message = message_of(changed(Change("é", value, Instant(at), WallSeconds(1_800_000_000.25))), "s")
        sent.append(json.loads(message.data))
    for row in sent:
        assert row.pop("_CHANGE_TYPE") == "UPSERT"
        assert SEQUENCE.fullmatch(row["_CHANGE_SEQUENCE_NUMBER"])
        assert int(row.pop("_CHANGE_SEQUENCE_NUMBER"), 16) == row["sequence"]
        assert {*row} == {*columns}, "BigQuery refuses a message with another field"
        assert all(TYPES[columns[name]](value) for name, value in row.items())
    assert table["table_constraints"][0]["primary_key"][0]["columns"] == table["clustering"] == ["counter"]


def test_only_what_changed_goes_to_the_table(files: Block) -> None:
    subscription = one(files, "google_pubsub_subscription")
    assert subscription["bigquery_config"][0]["use_table_schema"] is True
    text = subscription["filter"].replace('\\"', '"')
    ((name, wanted),) = re.findall(r'^attributes\."([\w-]+)" = "([\w.]+)"$', text)
    told = changed(Change("a", 1, Instant(1), WallSeconds(1.0)))
    ((_, other),) = reached(Reach(1, "a", 0, Levels(1, 1, 1), 1, Instant(1), WallSeconds(1.0)), 1)
    assert message_of(told, "s").attributes[name] == wanted
    assert message_of(other, "s").attributes[name] != wanted


def test_the_settings_that_it_prints_are_those_of_flushers(files: Block) -> None:
    ((output,),) = files["output"].values()
    assert {*output["value"]} <= {*re.findall(r"COUNTERSINK_\w+", parser_of_all().format_help())}

"""The pages of benchmarks have the figures of the results, and each of these has its date and its commit."""

import re
from copy import deepcopy
from datetime import datetime
from typing import Any, Final
from xml.etree import ElementTree as ET

import orjson
import pytest

from bench.__main__ import LONG, ROWS
from bench.contention import FILE, PLOT, TITLES, lines, panel
from bench.page import AGAINST, BLOCKS, PAGE, PLOTS, RESULTS, filled
from bench.plot import draw
from tests.meta.checkout import ROOT

DOCUMENT: Final[dict[str, Any]] = orjson.loads(RESULTS.read_bytes())


def test_each_row_has_its_date_and_its_commit() -> None:
    assert datetime.fromisoformat(DOCUMENT["date"])
    assert re.fullmatch(r"[0-9a-f]{12}", DOCUMENT["commit"]), "the code had changes that are in no commit"
    for row in DOCUMENT["rows"]:
        assert datetime.fromisoformat(row["date"]), row["name"]
        assert re.fullmatch(r"[0-9a-f]{12}", row["commit"]), row["name"]


def test_the_page_has_the_figures_of_the_results() -> None:
    page = PAGE.read_text()
    assert filled(page, DOCUMENT) == page
    assert filled(page, {**DOCUMENT, "commit": "0" * 12}) != page
    assert sorted(re.findall(r"<!-- figures: (\w+) -->", page)) == sorted([*BLOCKS, "run"])


def test_a_row_that_was_not_measured_is_said_to_be_missing() -> None:
    skipped = deepcopy(DOCUMENT)
    for row in skipped["rows"]:
        row["ours"], row["notes"] = None, ["skipped: webdis is not installed"]
    page = filled(PAGE.read_text(), skipped)
    assert "not measured: webdis is not installed" in page
    assert "not measured" in filled(page, {**DOCUMENT, "rows": []})


@pytest.mark.parametrize("name", PLOTS)
def test_the_plots_are_drawn_of_the_results(name: str) -> None:
    drawn = PAGE.with_name(name).read_text()
    assert drawn == PLOTS[name](DOCUMENT)
    ET.fromstring(drawn)
    assert f"({name})" in PAGE.read_text()


def test_the_rows_of_the_page_are_rows_of_the_usual_run() -> None:
    usual = {key for key in ROWS if key not in LONG}
    on_page = {name.removesuffix("-apart") for rows in AGAINST.values() for name in rows}
    assert on_page <= usual


def test_the_plot_is_drawn_of_the_figures() -> None:
    kept = orjson.loads(FILE.read_bytes())
    assert PLOT.read_text() == draw([panel(TITLES[name], kept[name]) for name in TITLES if name in kept])
    ET.fromstring(PLOT.read_text())


def test_the_page_says_the_same() -> None:
    page = (ROOT / "docs" / "contention.md").read_text().splitlines()
    for name, more in orjson.loads(FILE.read_bytes()).items():
        for line in lines(TITLES[name], more):
            assert line in page

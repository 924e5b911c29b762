"""The pages of benchmarks have the figures of the results, each with its date and commit; the quick check of them fails
if Countersink has become slower, and only then.
"""

import contextlib
import re
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import orjson
import pytest

from bench import quick, shapes, singles
from bench.__main__ import LONG, ROWS, main
from bench.contention import FILE, PLOT, TITLES, lines, panel
from bench.emulators import Emulators
from bench.figures import Figure, Plan, Row
from bench.page import AGAINST, BLOCKS, PAGE, PLOTS, RESULTS, filled
from bench.plot import draw
from bench.rivals import Rivals
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


def test_the_plot_of_contention_is_drawn_of_the_figures() -> None:
    kept = orjson.loads(FILE.read_bytes())
    assert PLOT.read_text() == draw([panel(TITLES[name], kept[name]) for name in TITLES if name in kept])
    ET.fromstring(PLOT.read_text())


def test_the_page_on_contention_says_the_same() -> None:
    page = (ROOT / "docs" / "contention.md").read_text().splitlines()
    for name, more in orjson.loads(FILE.read_bytes()).items():
        for line in lines(TITLES[name], more):
            assert line in page


TEN = [0.95, 1.05, 1.0, 0.98, 1.02, 0.99, 1.01, 1.0, 0.97, 1.03]


def row(ratio: float | None, name: str = "get") -> Row:
    return Row(name, name, more={} if ratio is None else {"cpu_ratio": Figure.of([ratio])})


@pytest.mark.parametrize(("ratio", "fell"), [(1.0, False), (0.71, False), (0.69, True), (2.0, False), (None, True)])
def test_a_ratio_below_noise_fell(ratio: float | None, fell: bool) -> None:
    assert quick.fell(row(ratio), {"get": TEN}) is fell
    assert not quick.fell(row(ratio, "other"), {"get": TEN})


def test_more_noise_lets_a_ratio_fall_lower() -> None:
    assert quick.floor([0.5 + one for one in TEN]) > quick.floor([1.5 + 10 * (one - 1) for one in TEN])


def test_what_is_kept_has_each_row_that_is_checked() -> None:
    kept = quick.kept()
    assert set(kept) == set(quick.ROWS) <= set(ROWS)
    for name, ratios in kept.items():
        assert len(ratios) >= 10
        assert quick.floor(ratios) > 0.5 * min(ratios), name


@pytest.mark.check  # a C compiler and wrk
def test_a_service_without_its_fast_path_is_slower_than_what_is_kept(tmp_path: Path) -> None:
    """The slow-down is real: another process, which really counts."""
    with Emulators(tmp_path) as emulators, Rivals(emulators) as rivals:
        plan = Plan(tmp_path, tmp_path, shapes.bodies(tmp_path), 3, 1, 1, 1, 1, 1, emulators, rivals)
        slow = singles.post_without_fast_path(plan)
    slow.name = "post"
    assert quick.fell(slow, quick.kept()), quick.told(slow, quick.kept())


@pytest.mark.check  # wrk
@pytest.mark.parametrize(("factor", "code"), [(0.1, None), (10.0, "slower than quick.json says")])
def test_the_quick_check_fails_by_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], factor: float, code: str | None
) -> None:
    """Against ratios that are a tenth of those that were kept, and ten times as high."""
    against = tmp_path / "quick.json"
    quick.keep(against, {}, {key: [one * factor for one in ratios] for key, ratios in quick.kept().items()})
    monkeypatch.setattr("sys.argv", ["bench", "--quick", "--only", "get", "--against", str(against)])
    monkeypatch.setitem(ROWS, "get", lambda _: row(quick.kept()["get"][0]))
    with pytest.raises(SystemExit) if code else contextlib.nullcontext() as ended:
        main()
    assert ended is None or str(code) in str(ended.value)
    assert capsys.readouterr().out.count("it fell: once more") == (2 if code else 0)

"""The plot and the table in the documents are made of the figures that were measured."""

from xml.etree import ElementTree as ET

import orjson

from bench.contention import FILE, PLOT, TITLES, lines, panel
from bench.plot import draw
from tests.meta.checkout import ROOT


def test_the_plot_is_drawn_of_the_figures() -> None:
    kept = orjson.loads(FILE.read_bytes())
    assert PLOT.read_text() == draw([panel(TITLES[name], kept[name]) for name in TITLES if name in kept])
    ET.fromstring(PLOT.read_text())


def test_the_page_says_the_same() -> None:
    page = (ROOT / "docs" / "contention.md").read_text().splitlines()
    for name, more in orjson.loads(FILE.read_bytes()).items():
        for line in lines(TITLES[name], more):
            assert line in page

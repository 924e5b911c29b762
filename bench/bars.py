"""Draws groups of horizontal bars as SVG, light or dark as the reader's screen is."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from bench.plot import STYLE

WIDTH: Final = 900
NAMES: Final = 260
"""The width of what stands before the bars."""
SHOWN: Final = 64
"""The width of the number behind a bar."""
BAR: Final = 13
GAP: Final = 10
TOP: Final = 50
KINDS: Final = ("ours", "same", "less")
"""Classes of the style, in the order of the legend: Countersink; others that promise as much; others that do not."""


class Bars(NamedTuple):
    """What one thing reaches."""

    name: str
    kind: str
    """Of `KINDS`."""
    values: Sequence[float | None]
    """One for each panel: None where it was not measured. With no values at all, the name is a heading."""


def draw(title: str, panels: Sequence[str], bars: Sequence[Bars], legend: Sequence[str]) -> str:
    """The panels stand side by side, each with a scale of its own that begins at 0."""
    height = TOP + len(bars) * (BAR + GAP) + 34
    room = (WIDTH - NAMES) / len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<text class="title" x="{NAMES + room * number:.0f}" y="{TOP - 20}">{escape(panel)}</text>')
    for line, one in enumerate(bars):
        y = TOP + line * (BAR + GAP)
        style = 'text-anchor="end"' if one.values else 'text-anchor="end" class="title"'
        parts.append(f'<text x="{NAMES - 10}" y="{y + BAR - 3}" {style}>{escape(one.name)}</text>')
        for number, value in enumerate(one.values):
            if value is None:
                continue
            most = max(other.values[number] or 0 for other in bars if other.values)
            x, length = NAMES + room * number, max((room - SHOWN) * value / most, 1)
            parts.append(f'<rect class="{one.kind}" x="{x:.0f}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>')
            parts.append(f'<text x="{x + length + 5:.1f}" y="{y + BAR - 3}">{_short(value)}</text>')
    places = [20.0]
    for said in legend:
        places.append(places[-1] + 34 + 6.2 * len(said))
    for kind, said, (x, _) in zip(KINDS, legend, pairwise(places), strict=False):
        parts.append(f'<rect class="{kind}" x="{x:.0f}" y="{height - 22}" width="12" height="12" rx="2"/>')
        parts.append(f'<text x="{x + 17:.0f}" y="{height - 12}">{escape(said)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"

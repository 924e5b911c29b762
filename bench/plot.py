"""Draws plots as SVG, by hand, as it is a few lines: the contention experiment, and groups of horizontal bars."""

from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import Final, NamedTuple

Point = tuple[float, float]

WIDTH: Final = 380
HEIGHT: Final = 300
LEFT: Final = 58
RIGHT: Final = 48
TOP: Final = 46
BOTTOM: Final = 58
SAID: Final = 230
"""The width of a line of the legend."""
TICKS: Final = (1, 2, 5, 10, 20, 50, 100)
RATE: Final = "var(--ours)"
ABORTED: Final = "var(--bad)"
ITSELF: Final = "var(--same)"
STYLE: Final = (
    ":root{--ground:#ffffff;--text:#1f2328;--line:#57606a;--grid:#d0d7de;--ours:#0969da;--same:#1a7f37;--less:#9aa4af;"
    "--bad:#d1242f}"
    "@media(prefers-color-scheme:dark){:root{--ground:#0d1117;--text:#e6edf3;--line:#9198a1;--grid:#30363d;"
    "--ours:#4493f8;--same:#3fb950;--less:#6e7681;--bad:#f85149}}"
    "text{font:11px sans-serif;fill:var(--text)}.title{font-size:12px;font-weight:bold}"
    ".ground{fill:var(--ground)}.axis{stroke:var(--line)}.grid{stroke:var(--grid);stroke-width:.5}"
    ".ours{fill:var(--ours)}.same{fill:var(--same)}.less{fill:var(--less)}"
)
"""Colours are light or dark as the reader's screen is, ground and text included, on whatever page the plot stands."""


class Panel(NamedTuple):
    """One ground. Points are by numbers of shards."""

    title: str
    rates: Sequence[Point]
    """Commits a second."""
    aborted: Sequence[Point]
    """Of all tries: 0 to 1."""
    itself: tuple[float, float, float]
    """Of the counter that sized itself: shards, rate, aborted."""


def draw(panels: Sequence[Panel]) -> str:
    width, height = max(WIDTH * len(panels), LEFT + 3 * SAID), HEIGHT + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Commits a second, and the share of aborted tries, by number of shards</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{width}" height="{height}"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({WIDTH * number} 0)">{"".join(_panel(panel))}</g>')
    legend = (
        (RATE, "commits a second, fixed number"),
        (ABORTED, "aborted tries, fixed number"),
        (ITSELF, "sizing itself: where it arrived"),
    )
    for number, (colour, said) in enumerate(legend):
        x = LEFT + SAID * number
        parts.append(f'<circle cx="{x}" cy="{HEIGHT + 8}" r="4" style="fill:{colour}"/>')
        parts.append(f'<text x="{x + 10}" y="{HEIGHT + 12}">{said}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel) -> list[str]:
    shards, rate, aborted = panel.itself
    top = _round_up(max(rate, *(value for _, value in panel.rates)))
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT

    def x(count: float) -> float:
        return LEFT + (right - LEFT) * log10(count) / log10(TICKS[-1])

    def y_of(most: float) -> Callable[[float], float]:
        return lambda value: bottom - (bottom - TOP) * value / most

    y, share = y_of(top), y_of(1.0)
    parts = [f'<text class="title" x="{LEFT}" y="20">{escape(panel.title)}</text>']
    for part in range(5):
        at = y(top * part / 4)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{top * part / 4:,.6g}</text>')
        parts.append(f'<text x="{right + 6}" y="{at + 4:.1f}" style="fill:{ABORTED}">{25 * part} %</text>')
    parts += [f'<text x="{x(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{tick}</text>' for tick in TICKS]
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>')
    parts.append(f'<text x="{(LEFT + right) / 2}" y="{bottom + 34}" text-anchor="middle">shards</text>')
    parts += _line(panel.aborted, x, share, ABORTED, "4 3")
    parts += _line(panel.rates, x, y, RATE, "")
    mark = f'cx="{x(shards):.1f}" style="stroke:{ITSELF};stroke-width:2;fill:none" r="6"'
    parts.append(
        f'<circle {mark} cy="{y(rate):.1f}"/><circle {mark} cy="{share(aborted):.1f}" stroke-dasharray="2 2"/>'
    )
    parts.append(
        f'<text x="{x(shards):.1f}" y="{y(rate) - 12:.1f}" text-anchor="middle" style="fill:{ITSELF}">{shards:g}</text>'
    )
    return parts


def _line(
    points: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float], colour: str, dashes: str
) -> list[str]:
    path = " ".join(f"{x(count):.1f},{y(value):.1f}" for count, value in points)
    line = f'<polyline points="{path}" style="fill:none;stroke:{colour};stroke-width:2" stroke-dasharray="{dashes}"/>'
    return [line, *(f'<circle cx="{x(c):.1f}" cy="{y(v):.1f}" r="3" style="fill:{colour}"/>' for c, v in points)]


def _round_up(value: float) -> float:
    """To 1, 2, 4 or 8 times a power of ten, so that quarters of it are short."""
    power = 10 ** floor(log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 4, 8, 10) if ceil(value / power * 1e9) <= step * 1e9)


# Groups of horizontal bars.


BARS_WIDTH: Final = 900
NAMES: Final = 260
"""The width of what stands before the bars."""
SHOWN: Final = 64
"""The width of the number behind a bar."""
BAR: Final = 13
GAP: Final = 10
BARS_TOP: Final = 50
KINDS: Final = ("ours", "same", "less")
"""Classes of the style, in the order of the legend: Countersink; others that promise as much; others that do not."""


class Bars(NamedTuple):
    """What one thing reaches."""

    name: str
    kind: str
    """Of `KINDS`."""
    values: Sequence[float | None]
    """One for each panel: None where it was not measured. With no values at all, the name is a heading."""


def draw_bars(title: str, panels: Sequence[str], bars: Sequence[Bars], legend: Sequence[str]) -> str:
    """The panels stand side by side, each with a scale of its own that begins at 0."""
    height = BARS_TOP + len(bars) * (BAR + GAP) + 34
    room = (BARS_WIDTH - NAMES) / len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {BARS_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{BARS_WIDTH}" height="{height}"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<text class="title" x="{NAMES + room * number:.0f}" y="{BARS_TOP - 20}">{escape(panel)}</text>')
    for line, one in enumerate(bars):
        y = BARS_TOP + line * (BAR + GAP)
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

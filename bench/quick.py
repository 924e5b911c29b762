"""The quick check: whether a ratio fell below those that `quick.json` keeps, beyond their noise.

It compares processor time for each request or event, in ratios to the reference: on a machine with other work, rates
say how much of the processor one got.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from bench.figures import Figure, Row

ROWS: Final = ("post", "get", "array100-up")
"""What is checked: together they take less than a minute."""
KEPT: Final = Path(__file__).with_name("quick.json")
NOISE: Final = 3.0
"""Standard deviations of the kept ratios, below their median, that are still noise."""
LEAST: Final = 0.3
"""The share of the median that is noise in any case: other machines have other ratios."""
TRIES: Final = 3
"""A row fell if it did so each time."""


def kept(file: Path = KEPT) -> dict[str, list[float]]:
    """The ratios of each row, one of each run."""
    return dict(orjson.loads(file.read_bytes())["ratios"])


def keep(file: Path, about: Mapping[str, Any], ratios: Mapping[str, Sequence[float]]) -> None:
    file.write_bytes(orjson.dumps({**about, "ratios": ratios}, option=orjson.OPT_INDENT_2) + b"\n")


def ratio(row: Row) -> float | None:
    figure = row.more.get("cpu_ratio")
    return figure.median if isinstance(figure, Figure) else None


def floor(ratios: Sequence[float]) -> float:
    """The lowest ratio that noise explains."""
    median = statistics.median(ratios)
    return median - max(NOISE * statistics.stdev(ratios), LEAST * median)


def fell(row: Row, ratios: Mapping[str, Sequence[float]]) -> bool:
    """A row that could not be measured fell, too. One that `ratios` does not have can't fall."""
    if row.name not in ratios:
        return False
    found = ratio(row)
    return found is None or found < floor(ratios[row.name])


def told(row: Row, ratios: Mapping[str, Sequence[float]]) -> str:
    """A line about the row for people."""
    found, usual = ratio(row), ratios[row.name]
    return (
        f"{row.name}: {'not measured' if found is None else f'{found:.2f}'}; it was {statistics.median(usual):.2f} in"
        f" {len(usual)} runs, and noise ends at {floor(usual):.2f}"
    )

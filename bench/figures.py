"""The plan of a run, figures of several rounds, and the rows of the table."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.emulators import Emulators
    from bench.rivals import Rivals


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often one run measures everything."""

    folder: Path
    """For data and bodies, ours alone."""
    data: Path
    """The folder that it is in, where servers that run as another user may have folders of their own."""
    bodies: dict[str, Path]
    rounds: int
    """Of rows with a target; three do for the others."""
    cloud_rounds: int
    """Of rows on emulators, which take longer."""
    seconds: float
    """Of one load in one round."""
    sustained: float
    """Seconds of the memory row."""
    many: int
    """Increments, ids or counters of the rows of a SQLite file."""
    counters: int
    """That a job visits."""
    emulators: "Emulators"
    rivals: "Rivals"
    """The original algorithm on them."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Of some rounds."""

    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        return cls(min(values), statistics.median(values), max(values))

    def show(self, digits: int) -> str:
        return f"{self.median:,.{digits}f} ({self.min:,.{digits}f} - {self.max:,.{digits}f})"


@dataclass(slots=True)
class Row:
    """One measurement. A row with a target is met or missed; one without informs."""

    name: str
    what: str
    unit: str = ""
    ours: Figure | None = None
    reference: Figure | None = None
    ratio: Figure | None = None
    target: float | None = None
    met: bool | None = None
    notes: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    date: str = ""
    """When it was measured."""

    @property
    def verdict(self) -> str:
        return "" if self.met is None else "met" if self.met else "MISSED"

    def document(self) -> dict[str, Any]:
        return asdict(self)


def compare(rounds: int, ours: Callable[[], float], reference: Callable[[], float]) -> tuple[Figure, Figure, Figure]:
    """Ours and the reference in turn; the ratios are of one round each, since machines drift."""
    pairs = [(ours(), reference()) for _ in range(rounds)]
    a, b = zip(*pairs, strict=True)
    return Figure.of(a), Figure.of(b), Figure.of([x / y for x, y in pairs])


def table(rows: Sequence[Row]) -> str:
    head = ("row", "Countersink", "reference", "ratio", "target", "")
    lines = [head]
    for row in rows:
        digits = 0 if row.ours is not None and row.ours.median >= 100 else 2
        lines.append(
            (
                row.what,
                f"{row.ours.show(digits)} {row.unit}" if row.ours else "",
                row.reference.show(digits) if row.reference else "",
                row.ratio.show(2) if row.ratio else "",
                f"{row.target:g}" if row.target is not None else "",
                row.verdict,
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    shown = []
    for number, line in enumerate(lines):
        shown.append("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        if number:
            shown += [f"    {note}" for note in rows[number - 1].notes]
    return "\n".join(shown)

"""Results as the table of docs/reliability.md; what stands around it is document.py's."""

from collections.abc import Sequence
from typing import Final

from tests.reliability.rows import PAIRS, Result

HEAD: Final = (
    "fault",
    "on",
    "load during it",
    "seconds",
    "accepted",
    "counted",
    "lost",
    "doubled",
    "exact reads, all right",
    "not answered 2xx at first",
    "recovered after",
    "peak memory",
)


def table(results: Sequence[Result]) -> str:
    rows = [HEAD, tuple("---" for _ in HEAD), *map(_cells, results)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cells(result: Result) -> tuple[str, ...]:
    row = result.row
    errors = ", ".join(f"{what}: {number:,}" for what, number in sorted(result.errors.items()))
    return (
        f"`{row.name}`: {row.fault}",
        PAIRS[result.pair],
        result.load,
        f"{result.seconds:.0f}",
        f"{result.accepted:,}",
        f"{result.counted:,}",
        f"{result.lost:,}",
        f"{result.doubled:,}",
        f"{result.exact_reads:,} of {result.reads:,}",
        errors or "none",
        f"{result.recovered:.1f} s",
        f"{result.peak / 2**20:.0f} MiB",
    )


def failures(results: Sequence[Result]) -> list[str]:
    """What must not be, a line each."""
    return [f"{result.row.name} on {PAIRS[result.pair]}: {wrong}" for result in results for wrong in result.wrong]

"""The command line: measures, prints a table, writes results.json."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from bench import (
    backlog,
    batches,
    client,
    cloud,
    contention,
    ids,
    jobs,
    listing,
    load,
    machine,
    memory,
    operations,
    page,
    quick,
    shapes,
    singles,
    space,
    watching,
)
from bench.emulators import Emulators, MissingError
from bench.figures import Plan, Row, table
from bench.peers import rows as peers
from bench.rivals import Rivals

ROWS: dict[str, Callable[[Plan], Row | list[Row]]] = {
    "post": singles.post,
    "post-without-fast-path": singles.post_without_fast_path,
    "post-empty": singles.post_empty,
    "post-ids": singles.post_ids,
    "post-names": singles.post_names,
    "array100": batches.array100,
    "array1000": batches.array1000,
    "map1000": batches.map1000,
    "array100-up": batches.array100_up,
    "get": singles.get,
    "memory-flat": memory.flat,
    "memory-bounded": memory.bounded,
    "client-incr": client.incr,
    "client-away": client.away,
    "watch": watching.watch,
    **peers.ROWS,
    **cloud.ROWS,
    **operations.ROWS,
    **space.ROWS,
    "ids-in-a-file": ids.in_a_file,
    "list": listing.of_all,
    **backlog.ROWS,
    **jobs.ROWS,
    **contention.ROWS,
}
_LONG = (
    "map-",
    "contention-",
    "space-",
    "ids-",
    "list",
    "backlog-",
    "cloud-",
    "memory-bounded",
    "peers-names-64",
    "post-empty",
    "post-without-",
)
LONG = tuple(
    key for key in ROWS if key.startswith(_LONG) and key not in {"cloud-firestore-post", "cloud-operations"}
)  # fmt: skip
"""These only run if they are named: with the others, `make bench` takes ten minutes."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="short rounds of few rows, within a minute; fails if a ratio fell"
        f" below those in {quick.KEPT.name} beyond noise. With --only: a look at these rows",
    )  # fmt: skip
    parser.add_argument("--against", type=Path, default=quick.KEPT, metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument(
        "--keep", type=int, metavar="N", help=f"run the quick check N times, and keep its ratios in {quick.KEPT.name}"
    )
    parser.add_argument(
        "--only",
        action="extend",
        type=_rows,
        metavar="NAME",
        help=f"a row, or how several begin: {', '.join(ROWS)}. Only if named: {', '.join(LONG)}",
    )
    parser.add_argument("--seconds", type=float, help="of the memory row (30)")
    parser.add_argument("--rounds", type=int, help="of each comparison (3; 2 on emulators)")
    parser.add_argument("--data", type=Path, default=_folder(), help="where data goes; a disk, not tmpfs (%(default)s)")
    parser.add_argument("--counters", type=int, help="of the map rows (100,000)")
    parser.add_argument("--out", type=Path, help=f"the results: of a whole run, or with --only in the"
                        f" place of those of the same rows ({page.RESULTS}); none with --quick")  # fmt: skip
    asked = parser.parse_args()
    asked.quick = asked.quick or asked.keep is not None
    if asked.out is None and not asked.quick:
        asked.out = page.RESULTS
    return asked


def _rows(name: str) -> list[str]:
    """The row of that name, or all that begin with it."""
    found = [name] if name in ROWS else [key for key in ROWS if key.startswith(f"{name}-")]
    if not found:
        raise argparse.ArgumentTypeError(f"there is no row {name!r}")
    return found


def _folder() -> Path:
    """Temporary files that are on a disk, by custom."""
    lasting = Path("/var/tmp")
    return lasting if lasting.is_dir() else Path(tempfile.gettempdir())


def main() -> None:
    asked = arguments()
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="countersink-bench-", dir=asked.data) as name,
        Emulators(folder := Path(name).resolve()) as emulators,
        Rivals(emulators) as rivals,
    ):
        plan = Plan(
            folder=folder,
            data=folder.parent,
            bodies=shapes.bodies(folder),
            rounds=asked.rounds or 3,
            cloud_rounds=asked.rounds or 2,
            seconds=1 if asked.quick else 2,
            names=10**6 if asked.quick else 10**8,
            counters=asked.counters or (5_000 if asked.quick else 100_000),
            sustained=asked.seconds or (10 if asked.quick else 30),
            emulators=emulators,
            rivals=rivals,
        )
        about = {
            "date": _now(),
            "commit": machine.commit(),
            "machine": machine.describe(folder),
            "generator": load.generator(),
        }
        _tell(about, plan)
        if asked.keep:
            quick.keep(asked.against, about, _ratios(plan, asked.keep))
            return
        against = quick.kept(asked.against) if asked.quick else {}
        rows: list[Row] = []
        for key in asked.only or (quick.ROWS if asked.quick else [key for key in ROWS if key not in LONG]):
            measured = _measure(key, plan)
            for _ in range(1, quick.TRIES):
                if any(quick.fell(row, against) for row in measured):
                    print("  it fell: once more", flush=True)
                    measured = _measure(key, plan)
            rows += measured
    fallen = [row.name for row in rows if quick.fell(row, against)]
    print(f"\n{table(rows)}\n\n{time.monotonic() - begun:.0f} s")
    if asked.out is not None:
        _save(asked.out, about, [row.document() | _how(plan, about) for row in rows], whole=not asked.only)
        if asked.out == page.RESULTS:
            page.write()
    checked = [row for row in rows if row.name in against]
    if checked:
        print("\nProcessor time for each request or event, the reference's divided by ours:")
        print("\n".join(quick.told(row, against) for row in checked))
    if fallen:
        sys.exit(f"slower than {asked.against.name} says, beyond noise, or not measured: {', '.join(fallen)}")


def _tell(about: dict[str, Any], plan: Plan) -> None:
    where = about["machine"]
    print(f"{where['processors']} x {where['processor']}, Python {where['python']}; {where['pinning']}")
    print(f"data on {where['file_system']}, a sync takes {where['sync_ms']} ms; generator: {about['generator']}")
    print(f"load average {where['load']}{': others are at work' if where['load'] > page.BUSY else ''}")
    print(
        f"commit {about['commit']}; medians (min - max) of {plan.rounds} rounds ({plan.cloud_rounds} on emulators) of"
        f" {plan.seconds} s, each with its reference\n",
        flush=True,
    )


def _how(plan: Plan, about: dict[str, Any]) -> dict[str, Any]:
    return {
        "commit": about["commit"],
        "rounds": plan.rounds,
        "cloud_rounds": plan.cloud_rounds,
        "seconds": plan.seconds,
    }


def _save(file: Path, about: dict[str, Any], rows: list[dict[str, Any]], *, whole: bool) -> None:
    """In place of those of the same names. Of earlier runs, a whole run keeps only rows that it does not have."""
    earlier = orjson.loads(file.read_bytes()) if file.exists() else {**about, "rows": []}
    kept = [row for row in earlier["rows"] if not whole or (row["name"] in LONG and row.get("commit"))]
    by_name = {row["name"]: row for row in [*kept, *rows]}
    document = {**(about if whole else earlier), "rows": [*by_name.values()]}
    file.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def _ratios(plan: Plan, times: int) -> dict[str, list[float]]:
    """What the quick check compares with: the ratio of each row in each of so many runs."""
    found: dict[str, list[float]] = {key: [] for key in quick.ROWS}
    for number in range(times):
        for key, ratios in found.items():
            (row,) = _measure(key, plan)
            ratio = quick.ratio(row)
            if ratio is None:
                sys.exit(f"{key} has no ratio: {'; '.join(row.notes)}")
            ratios.append(ratio)
            print(f"  {ratio:.3f} in run {number + 1}", flush=True)
    return found


def _measure(key: str, plan: Plan) -> list[Row]:
    """A row that fails is missed, and the others are still measured."""
    print(f"{key} …", end=" ", flush=True)
    begun, date = time.monotonic(), _now()
    try:
        found = ROWS[key](replace(plan, folder=Path(tempfile.mkdtemp(dir=plan.folder))))
    except MissingError as missing:
        found = Row(key, key, notes=[f"skipped: {missing}"])
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        found = Row(key, key, met=False, notes=[f"failed: {error}"])
    rows = found if isinstance(found, list) else [found]
    for row in rows:
        row.date = date
    print(f"{time.monotonic() - begun:.0f} s", flush=True)
    return rows


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


if __name__ == "__main__":
    main()

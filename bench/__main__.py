"""The command line: measures, prints a table, writes results.json."""

import argparse
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from bench import (
    batches,
    client,
    cloud,
    contention,
    jobs,
    load,
    machine,
    memory,
    operations,
    shapes,
    singles,
    space,
    watching,
)
from bench.emulators import Emulators, MissingError
from bench.figures import Row, table
from bench.plan import Plan
from bench.rivals import Rivals

ROWS: dict[str, Callable[[Plan], Row]] = {
    "post": singles.post,
    "post-without-fast-path": singles.post_without_fast_path,
    "post-plain": singles.post_plain,
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
    **cloud.ROWS,
    **operations.ROWS,
    **space.ROWS,
    **jobs.ROWS,
    **contention.ROWS,
}
RESULTS = Path(__file__).with_name("results.json")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: a look, no result")
    parser.add_argument(
        "--only", action="extend", type=_rows, metavar="NAME", help=f"of {', '.join(ROWS)}; or how several begin"
    )
    parser.add_argument("--seconds", type=float, help="of the memory row (60)")
    parser.add_argument("--rounds", type=int, help="of each comparison (5; 3 on emulators)")
    parser.add_argument("--data", type=Path, default=_folder(), help="where data goes; a disk, not tmpfs (%(default)s)")
    parser.add_argument("--counters", type=int, help="of the map rows (100,000)")
    parser.add_argument("--out", type=Path, help=f"where these rows take the place of earlier ones ({RESULTS}); with"
                        " --quick none")  # fmt: skip
    asked = parser.parse_args()
    if asked.out is None and not asked.quick:
        asked.out = RESULTS
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
            bodies=shapes.bodies(folder),
            rounds=asked.rounds or (2 if asked.quick else 5),
            cloud_rounds=asked.rounds or (2 if asked.quick else 3),
            seconds=1 if asked.quick else 2,
            names=10**6 if asked.quick else 10**8,
            counters=asked.counters or (5_000 if asked.quick else 100_000),
            sustained=asked.seconds or (10 if asked.quick else 60),
            emulators=emulators,
            rivals=rivals,
        )
        where = machine.describe(folder)
        print(f"{where['processors']} x {where['processor']}, Python {where['python']}; {where['pinning']}")
        print(f"data on {where['file_system']}, a sync takes {where['sync_ms']} ms; generator: {load.generator()}")
        print(
            f"medians (min - max) of {plan.rounds} rounds ({plan.cloud_rounds} on emulators) of {plan.seconds} s,"
            " each with its reference\n",
            flush=True,
        )
        rows = []
        for key in asked.only or ROWS:
            print(f"{key} …", flush=True)
            rows.append(_measure(key, plan))
    print(f"\n{table(rows)}\n\n{time.monotonic() - begun:.0f} s")
    if asked.out is not None:
        _keep(asked.out, where, [row.document() | _how(plan) for row in rows])


def _how(plan: Plan) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rounds": plan.rounds,
        "cloud_rounds": plan.cloud_rounds,
        "seconds": plan.seconds,
    }


def _keep(file: Path, where: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """In place of those of the same names, so that a part of the rows can be measured anew."""
    earlier = orjson.loads(file.read_bytes())["rows"] if file.exists() else []
    by_name = {row["name"]: row for row in [*earlier, *rows]}
    document = {"machine": where, "generator": load.generator(), "rows": [*by_name.values()]}
    file.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def _measure(key: str, plan: Plan) -> Row:
    """A row that fails is missed, and the others are still measured."""
    try:
        return ROWS[key](plan)
    except MissingError as missing:
        return Row(key, key, notes=[f"skipped: {missing}"])
    except (RuntimeError, OSError) as error:
        return Row(key, key, met=False, notes=[f"failed: {error}"])


if __name__ == "__main__":
    main()

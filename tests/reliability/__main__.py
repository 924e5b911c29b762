"""The table of docs/reliability.md, from real processes: `make reliability ARGS='--only flushers-killed'`."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.http.fuzz.run import Tally
from tests.reliability import fuzzing
from tests.reliability.document import document, failures, table
from tests.reliability.own_servers import own
from tests.reliability.rows import PAIRS, Result
from tests.reliability.run import run
from tests.reliability.table import ROWS

NAMES = (*(row.name for row in ROWS), fuzzing.NAME)
DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"


def main(words: Sequence[str]) -> int:
    """0 if nothing was lost, doubled or wrong."""
    parser = argparse.ArgumentParser(prog="make reliability", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", action="append", metavar="ROW", help=", ".join(NAMES))
    parser.add_argument("--pair", action="append", choices=[*PAIRS], help="on these alone")
    parser.add_argument("--seconds", type=float, metavar="N", help="of each fault, instead of the row's own")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the document there [all rows: its place]")
    options = parser.parse_args(words)
    if unknown := set(options.only or ()) - {*NAMES}:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _told)
    out = options.out or (None if options.only or options.pair or options.seconds else DOCUMENT)
    try:
        results = done(options, out)
        tally = fuzzed(options)
    except KeyboardInterrupt:
        sys.exit("make reliability: ended by a signal")
    except (pytest.skip.Exception, pytest.fail.Exception) as error:  # gcloud, Java or Redis is missing
        sys.exit(f"make reliability: {error}")
    if out:
        out.write_text(document(results, tally))
    print(f"\n{table(results)}")
    wrong = failures(results)
    if tally is not None and tally.failed:
        wrong.append(f"{fuzzing.NAME}: {tally}")
    print("\n".join(wrong) or "nothing was lost, nothing doubled, nothing wrong")
    return 1 if wrong else 0


def done(options: argparse.Namespace, out: Path | None) -> list[Result]:
    """Row by row, so that each has the machine for itself. The document is there after each, if it takes an hour."""
    results = []
    with own() as ground:
        for row in ROWS:
            for pair in row.pairs:
                if row.name in (options.only or [row.name]) and pair in (options.pair or [pair]):
                    print(f"{row.name} on {PAIRS[pair]} …", flush=True)
                    with ground.fresh():
                        results.append(asyncio.run(run(row, pair, ground, options.seconds or row.long)))
                    print(f"  {table(results[-1:]).splitlines()[2]}", flush=True)
                    if out:
                        out.write_text(document(results, None))
    return results


def fuzzed(options: argparse.Namespace) -> Tally | None:
    """What the fuzzer did, last of all; None if others were asked for."""
    if options.pair or fuzzing.NAME not in (options.only or [fuzzing.NAME]):
        return None
    tally = fuzzing.fuzz(options.seconds or fuzzing.SECONDS, lambda said: print(said, flush=True))
    print(f"  {tally}", flush=True)
    return tally


def _told(*_: object) -> None:
    """As Ctrl-C: asyncio cancels the row, and what was started ends."""
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs, under each mutation, the tests that must notice it: `make mutations`, or `python -m tests.mutations NAME…`."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.mutations.mutation import LOOPS, Mutation
from tests.mutations.table import by_name

ROOT = Path(__file__).parents[2]
STARTUP = Path(__file__).with_name("startup")
PATIENCE = 3_000
"""Seconds. Tests that hang have noticed nothing that they could tell."""
_HUNG = ("TimeoutExpired", "Timeout (>")
_ENDED: Final = "+ Timeout +"
_SKIPPED = re.compile(r"^(?:\d+ \w+, )*\d+ skipped", re.MULTILINE)
"""In the last line of the tests. One that was skipped has not looked."""
_COULD_RUN: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""The last one: all of the tests are in the other part."""


def main(names: Sequence[str]) -> int:
    known = by_name()
    if unknown := set(names) - known.keys():
        raise SystemExit(f"no mutation is called {' or '.join(sorted(unknown))}; see tests/mutations")
    chosen = [one for one in known.values() if not names or one.name in names]
    missed = []
    for mutation in chosen:
        by = catches(mutation, "test") or catches(mutation, "check")
        print(f"{'caught ' if by else 'MISSED '} {mutation.name} ({by or ', '.join(mutation.places)})", flush=True)
        if not by:
            missed.append(mutation.name)
    print(f"{len(chosen)} mutations, {len(missed)} missed")
    return 1 if missed else 0


def catches(mutation: Mutation, part: str) -> str:
    """The first test of `make test` or `make check` that fails under the mutation; nothing if all pass."""
    loops = LOOPS in mutation.caught_by
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join([str(STARTUP), str(ROOT)])
        environment = os.environ | {"TEST_MUTATION": mutation.name, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        options = ["-qx", "-rfEs", "-p", "no:cacheprovider", f"--basetemp={folder}/tests", "--part", part]
        options += ["--timeout-method=thread"] * loops  # it ends the process, whatever catches exceptions
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *mutation.caught_by],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    if loops and _ENDED in done.stdout:
        return f"make {part}: {mutation.caught_by[0]} does not end"
    hung = any(word in done.stdout for word in _HUNG)
    skipped = done.returncode == 0 and _SKIPPED.search(done.stdout)
    if done.returncode not in _COULD_RUN or hung or skipped:
        print(f"The tests of {mutation.name!r} could not run:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")
        return ""
    failed = [
        line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))
    ]
    return f"make {part}: {failed[0]}" if failed else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

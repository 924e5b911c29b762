"""Runs the tests of `make test`, or with `--check` all that `make check` runs, and says what ran and what it took."""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
DURATIONS: Final = Path(__file__).with_name("durations.json")
"""The run of `make test` that others are compared with: cases, processor seconds and wall seconds of each file."""
MOST_GROWTH: Final = 1.5
"""On a shared machine, the same tests have taken a third more within an hour, measured by the yardstick."""
NO_TESTS: Final = 5
"""The exit code of pytest if no test matches."""
NEWEST: Final = "3.13"
"""The newest Python that we claim. `make check` runs some tests on it; `make test PYTHON=…` would run all."""
VENV: Final = f".venv-{NEWEST}"
ON_NEWEST: Final = ("--first-cases", *(f"tests/{folder}" for folder in ("unit/client", "unit/sqlite", "http", "cli")))
NOT_ON_NEWEST: Final = (
    *("http/fuzz", "http/test_fast_path.py", "http/test_messages_agree.py", "http/test_fairness.py"),
    *("http/test_many_waits.py", "http/test_held_bytes.py", "http/test_pending.py"),
    *("http/test_jobs.py", "http/test_access.py", "http/test_dead_letters.py"),
    *("http/test_publishable_keys.py", "http/test_refused.py", "http/test_refused_work.py"),
    *("http/test_export_series.py", "http/test_new_names.py", "cli/test_copy.py", "cli/test_map.py"),
    *("cli/test_audit.py", "cli/test_dead_letters.py", "cli/test_setup.py", "cli/test_imports.py"),
)
"""One case of each test where our code meets Python's own: asyncio, sqlite3, threads, argparse. A version changes how
these work, not what one more value does, nor what our own code decides. Random comparisons and loads take too long.
"""

TEST: Final = """
make test ran the tests that need nothing but Python: the embedded service, the client, the commands, all pure code.
It took {wall}, and {processor} of processor time.
make check runs the rest: Google's emulators, Redis, browsers, proxies, Prometheus, the image and the manifests, npm,
the newest Python, more simulated seeds, and a quick benchmark.
"""
CHECK: Final = """
make check ran everything that make test does not run, in {wall} and {processor} of processor time.
"""
NOTHING: Final = """
No test of {this} matches {arguments}. Perhaps {other} has it: {other} ARGS={arguments}
"""
PART: Final = """
A part of the tests ran, in {wall} and {processor} of processor time.
"""


class Run(NamedTuple):
    """One run of pytest, or of another check if `told` is empty."""

    code: int
    wall: float
    processor: float
    told: Mapping[str, Any] = {}

    def outcomes(self, outcome: str) -> list[str]:
        found: list[str] = self.told.get("outcomes", {}).get(outcome, [])
        return found


def timed(work: Callable[[], int]) -> Run:
    begun, before = time.monotonic(), os.times()
    code = work()
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return Run(code, time.monotonic() - begun, processor)


def call(command: Sequence[str]) -> int:
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def command(part: str, spent: Path, *arguments: str, python: str = sys.executable, workers: str = "auto") -> list[str]:
    """Of pytest, which writes what it spent into this file."""
    options = ("-n", workers, "--dist", "worksteal", "--part", part, "--spent", str(spent))
    return [python, "-m", "pytest", *options, *arguments]


def told(done: Run, spent: Path) -> Run:
    return done._replace(told=json.loads(spent.read_text()) if spent.exists() else {})


def pytest(part: str, *arguments: str) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        spent = Path(folder) / "spent.json"
        return told(timed(lambda: call(command(part, spent, *arguments))), spent)


class NewestPython:
    """Some tests on it, if this machine has it and `make test` did not run on it. They run, and before them what they
    need is installed, while other tests run, which mostly wait.
    """

    def __init__(self, folder: Path) -> None:
        self._spent, self._log = folder / "spent.json", folder / "log"
        python = next(filter(_is_newest, _pythons()), None)
        self._why_not = "" if python else "not on this machine, so nothing ran on it"
        if _is_newest(sys.executable):
            self._why_not = "make test ran on it"
        self._process: subprocess.Popen[bytes] | None = None
        if not self._why_not:
            install = ["make", f"VENV={VENV}", f"PYTHON={python}", f"{VENV}/.installed-dev"]
            arguments = (*ON_NEWEST, *(f"--ignore=tests/{path}" for path in NOT_ON_NEWEST))
            tests = command("test", self._spent, *arguments, python=f"{VENV}/bin/python", workers="2")
            script = f"{shlex.join(install)} && exec {shlex.join(tests)}"
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(["sh", "-c", script], cwd=ROOT, stdout=log, stderr=log)

    def ended(self) -> list[Run]:
        """Wait for its end, and print what it said."""
        done = [told(timed(self._process.wait), self._spent)] if self._process is not None else []
        print(f"\nPython {NEWEST}: {self._why_not or 'one case of each test that leans on it'}.")
        print(self._log.read_text() if done else "", flush=True)
        return done


def _pythons() -> Iterator[str]:
    """Where it may be: on the path, or one of those of pyenv, whose commands on the path may lead nowhere."""
    yield f"python{NEWEST}"
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(root.glob(f"versions/{NEWEST}.*/bin/python")))


def _is_newest(python: str) -> bool:
    test = f"import ensurepip, venv, sys; sys.exit('%d.%d' % sys.version_info[:2] != {NEWEST!r})"
    return (
        bool(shutil.which(python))
        and not subprocess.run([python, "-c", test], capture_output=True, check=False).returncode
    )


def check() -> list[Run]:
    """All of `make check`. One part that fails does not keep the others from running."""
    with tempfile.TemporaryDirectory() as folder:
        newest = NewestPython(Path(folder))
        runs = [pytest("check"), *newest.ended()]
    print("The quick benchmark:", flush=True)  # alone
    return [*runs, timed(lambda: call([sys.executable, "-m", "bench", "--quick"]))]


def nothing_ran(done: Run, this: str, other: str, arguments: Sequence[str]) -> None:
    """If that is so, say where such tests may be."""
    if done.code == NO_TESTS:
        print(NOTHING.format(this=this, other=other, arguments=shlex.quote(shlex.join(arguments))))


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60:02} s"


def say(text: str, runs: list[Run]) -> None:
    """What ran and what it took. The last line has the sum of all runs of pytest."""
    wall, processor = sum(one.wall for one in runs), sum(one.processor for one in runs)
    print(text.format(wall=minutes(wall), processor=minutes(processor)))
    say_where(runs)
    print()
    again = {test for one in runs for test in one.outcomes("failed")}
    if reruns := sorted({test for one in runs for test in one.outcomes("rerun")} - again):
        print(f"ATTENTION: {len(reruns)} failed, and passed when they ran once more. Find out why, and mend them:")
        print("".join(f"    {test}\n" for test in reruns))
    passed, skipped = (sum(len(one.outcomes(outcome)) for one in runs) for outcome in ("passed", "skipped"))
    failed = sum(len(one.outcomes(outcome)) for one in runs for outcome in ("failed", "error"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")


def say_where(runs: list[Run]) -> None:
    """What each folder took. A test waits for other processes, for the disk, and for a processor that others have."""
    rows: dict[str, list[float]] = {}
    for file, row in (item for one in runs for item in one.told.get("files", {}).items()):
        folder = rows.setdefault(file.split("/")[1], [0, 0, 0])
        folder[:] = [there + more for there, more in zip(folder, row, strict=True)]
    print("folder          cases   processor     waiting")
    for name, (cases, processor, wall) in sorted(rows.items(), key=lambda item: -item[1][1]):
        print(f"{name:14}{cases:7,}{processor:10.0f} s{max(0, wall - processor):10.0f} s")
    rest = sum(one.processor for one in runs) - sum(row[1] for row in rows.values())
    print(f"{'to get started':21}{rest:10.0f} s")


def has_grown(done: Run) -> bool:
    """Whether it took much more processor time than the run that was kept, on a machine as fast as that one."""
    kept = json.loads(DURATIONS.read_text())
    speed = kept["yardstick"] / done.told["yardstick"]
    factor = done.processor * speed / kept["processor"]
    if factor <= MOST_GROWTH:
        return False
    now = {file: row[1] * speed for file, row in done.told["files"].items()}
    more = {file: seconds - kept["files"].get(file, (0, 0.0))[1] for file, seconds in now.items()}
    print(f"make test took {factor:.2f} times the processor time of the run in tests/{DURATIONS.name}. Most grew:")
    for file in sorted(more, key=lambda file: -more[file])[:10]:
        print(f"    {file}: {now[file]:.1f} s, {more[file]:+.1f} s")
    print("Make it faster. If it has to take longer, keep the new times: make durations")
    return True


def keep(done: Run) -> None:
    head = {"processor": round(done.processor, 1), "yardstick": round(done.told["yardstick"], 4)}
    files = ",\n".join(f"  {json.dumps(file)}: {json.dumps(row)}" for file, row in done.told["files"].items())
    DURATIONS.write_text(f'{json.dumps(head)[:-1]}, "files": {{\n{files}\n}}}}\n')


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__)
    parser.add_argument("--check", action="store_true", help="what `make check` runs")
    parser.add_argument("--keep-durations", action="store_true", help=f"write {DURATIONS.name} anew, if all passes")
    asked, arguments = parser.parse_known_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each worker would compile Hypothesis and all tests
    in_ci = os.environ.get("COUNTERSINK_REQUIRE_ALL") == "1"
    if asked.check:
        runs = [pytest("check", *arguments)] if arguments else check()
        say(PART if arguments else CHECK, runs)
        nothing_ran(runs[0], "make check", "make test", arguments)
        return max(one.code for one in runs)
    os.environ["COUNTERSINK_REQUIRE_ALL"] = "1"  # these tests need nothing, so none may be skipped
    done = pytest("test", *arguments)
    say(PART if arguments else TEST, [done])
    nothing_ran(done, "make test", "make check", arguments)
    if arguments or done.code:
        return done.code
    if asked.keep_durations:
        keep(done)
    return 1 if has_grown(done) and in_ci else 0


if __name__ == "__main__":
    sys.exit(main())

"""Does each sabotage to a copy of the checkout and runs the tests that must notice: `make sabotage`."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutations.sabotages import SABOTAGES, Sabotage

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "results.json")


def main(names: Sequence[str]) -> int:
    if unknown := set(names) - {one.name for one in SABOTAGES}:
        raise SystemExit(f"no sabotage is called {' or '.join(sorted(unknown))}; their names are in sabotages.py")
    chosen = [one for one in SABOTAGES if not names or one.name in names]
    missed = []
    for sabotage in chosen:
        caught = catches(sabotage)
        print(f"{'caught ' if caught else 'MISSED '} {sabotage.name} ({sabotage.file})", flush=True)
        if not caught:
            missed.append(sabotage.name)
    print(f"{len(chosen)} sabotages, {len(missed)} missed")
    return 1 if missed else 0


def catches(sabotage: Sabotage) -> bool:
    """Whether a test fails that passes without it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        file = copy / sabotage.file
        text = file.read_text()
        if text.count(sabotage.line) != 1:
            raise SystemExit(f"{sabotage.name}: its line stands {text.count(sabotage.line)} times in {sabotage.file}")
        file.write_text(text.replace(sabotage.line, sabotage.instead))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *sabotage.caught_by]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode not in {0, 1}:
            raise SystemExit(f"{sabotage.name}: the tests could not run:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")
        return done.returncode == 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

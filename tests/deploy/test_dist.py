"""The wheels bring all that they need: in an empty environment, without extras, the command counts."""

import contextlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import countersink
from tests.deploy.programs import run
from tests.meta.checkout import ROOT


def environment_with_wheels(folder: Path) -> Path:
    """The commands of an environment in which nothing but our two wheels was asked for."""
    for project in (ROOT / "countersink", ROOT):
        wheel = ("--target", "wheel", "--directory", folder / "wheels")
        run(sys.executable, "-m", "hatchling", "build", *wheel, cwd=project)
    run(sys.executable, "-m", "venv", folder / "empty")
    found = folder / "empty" / "bin"
    run(found / "pip", "install", "--quiet", "--disable-pip-version-check", *sorted((folder / "wheels").glob("*.whl")))
    return found


def test_the_command_counts(tmp_path: Path) -> None:
    scripts = environment_with_wheels(tmp_path)
    run(scripts / "pip", "check")
    assert countersink.__version__ in run(scripts / "countersink", "--version")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COUNTERSINK_", "PYTHON"))}
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONUNBUFFERED": "1"}
    command = [str(scripts / "countersink"), "up", "--port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            url = re.search(r"http://127\.0\.0\.1:\d+", said)
            assert url, said
            request = urllib.request.Request(f"{url[0]}/v1/counters/visits", method="POST")
            with contextlib.closing(urllib.request.urlopen(request, timeout=20)) as answer:
                assert answer.status == 202
            with contextlib.closing(urllib.request.urlopen(f"{url[0]}/v1/counters/visits", timeout=20)) as answer:
                assert json.load(answer)["value"] == 1
        finally:
            process.terminate()
        assert process.wait(30) == 0

"""completion: bash completes what argparse knows; other shells at least understand their scripts."""

import shutil
import subprocess
from pathlib import Path

import pytest

from countersink_server.cli.completion import PROGRAM, words_of
from countersink_server.cli.main import parser_of_all
from tests.cli.running import run_here

_ASK = """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_countersink
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "script"
    file.write_text(run_here("completion", "bash").said + _ASK)
    return file


def completed(script: Path, *words: str, cwd: Path | None = None) -> list[str]:
    done = subprocess.run(["bash", str(script), *words], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["countersink", "st"], ["status"]),
        (["countersink", "incr", "--w"], ["--wait"]),
        (["countersink", "incr", "name", "--by", "2", "--j"], ["--json"]),
        (["countersink", "dlq", "re"], ["replay"]),
        (["countersink", "dlq", "replay", "--a"], ["--all"]),
        (["countersink", "get", "list", "--to"], [""]),
        (["countersink", "incr", "--by", ""], [""]),
        (["countersink", "completion", ""], ["-h", "--help", "bash", "zsh", "fish"]),
        (["countersink", "up", "--work"], [""]),
    ],
    ids=" ".join,
)
def test_bash_completes(script: Path, words: list[str], found: list[str]) -> None:
    assert completed(script, *words) == found


def test_bash_completes_files_and_folders(script: Path, tmp_path: Path) -> None:
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a file").touch()
    assert completed(script, "countersink", "get", "--data", "a", cwd=tmp_path) == ["a folder"]
    assert sorted(completed(script, "countersink", "map", "--export", "a", cwd=tmp_path)) == ["a file", "a folder"]


def test_every_command_is_completed() -> None:
    commands = dict(words_of(parser_of_all(), PROGRAM))
    assert {"incr", "watch", "status", "completion"} <= {word.text for word in commands[PROGRAM]}
    assert {word.text for word in commands["countersink keys"]} >= {"new", "list", "revoke"}
    assert "--url" not in {word.text for word in commands["countersink sweep"]}  # it is only refused there


@pytest.mark.parametrize("shell", [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)])
def test_the_shell_understands_its_script(shell: str) -> None:
    script = run_here("completion", shell).out
    done = subprocess.run([shell, "-n", "/dev/stdin"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

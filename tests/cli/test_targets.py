"""What a command talks to: a service or data, by the same options everywhere; and what it says about that."""

import contextlib
import json
import os
import pty
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import COUNTERSINK, NOWHERE, Done, environment, make_file, run, run_to, service


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with an empty file."""
    folder = tmp_path / "data"
    folder.mkdir()
    assert run("provision", "--data", str(folder), cwd=None, COUNTERSINK_EXISTING="yes").code == 0
    return folder


def test_data_without_a_service_are_counted_read_and_changed(data: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    def said(*arguments: str) -> str:
        return run(*arguments, "--data", str(data), cwd=None, COUNTERSINK_URL=NOWHERE, TMPDIR=str(empty)).said

    assert said("incr", "a", "--by", "3", "--id", "x").startswith("accepted, receipt ")
    said("incr", "a", "--by", "3", "--id", "x")
    assert said("get", "a") == "a  3\n"
    assert said("set", "b", "7") == "b  was 0, is 7\n"
    assert said("list") == "a  3\nb  7\n"
    assert said("reset", "a") == "a  was 3, is 0\n"
    assert said("shards", "b", "4") == "b  has 4 shards\n"
    assert said("delete", "b") == "b  was 7, is 0\n"
    said("incr", "c", "--by", "2")
    assert not [*empty.iterdir()]
    with service(data) as up:
        assert json.loads(run("get", "c", "--json", "--url", up.url, cwd=None).out)["value"] == 2
        assert run("get", "c", "--data", str(data), cwd=None).out == "c  2\n"  # also beside a service


@pytest.mark.parametrize(
    "command",
    [
        ["doctor"], ["sweep"], ["audit"], ["dlq", "list"], ["dlq", "replay", "--all"],
        ["map", "--prefix", "", "--add", "1"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_data_are_named_alike(command: list[str], data: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run(*command, "--data", str(data), cwd=elsewhere).code == 0
    assert run(*command, "--data", "no", cwd=elsewhere).code == (command != ["doctor"])  # which says that it is missing
    both = run(*command, "--data", str(data), cwd=elsewhere, COUNTERSINK_BROKER="sqlite:///x.db")
    assert both.code == 2
    assert "--data and COUNTERSINK_BROKER both say where the data is" in both.lines[-1]
    assert not [*elsewhere.iterdir()]


def test_a_failure_names_what_the_command_talked_to(tmp_path: Path) -> None:
    assert NOWHERE in run("get", "a", "--patience", "0", cwd=tmp_path, COUNTERSINK_URL=NOWHERE).refusal
    assert str(tmp_path) in run("sweep", cwd=tmp_path, COUNTERSINK_URL=NOWHERE).refusal


def test_a_command_that_is_advised_has_the_data_that_were_named(tmp_path: Path) -> None:
    """Without --data it would look at other data, and change them."""
    folder = tmp_path / "it's here"
    make_file(tmp_path)
    (tmp_path / ".countersink").rename(folder)
    assert run("incr", "a", "--data", str(folder), cwd=None).code == 0
    for file in folder.glob("countersink.db*"):
        if not file.name.endswith("-turn"):
            file.unlink()
    advised = f"countersink doctor --data {shlex.quote(str(folder))} --trust-file"
    for command in (["up", "--port", "0"], ["get", "a"], ["sweep"]):
        assert advised in run(*command, "--data", str(folder), cwd=tmp_path).refusal
    assert advised in run("doctor", "--data", str(folder), cwd=tmp_path).out
    told = run("doctor", "--json", "--data", str(folder), cwd=tmp_path).out.splitlines()
    assert any(advised in json.loads(line)["said"] for line in told)
    assert run(*shlex.split(advised), cwd=tmp_path).code == 2  # a program's name is no command
    assert run(*shlex.split(advised)[1:], cwd=tmp_path).code == 0
    assert run("up", "--port", "x", cwd=tmp_path).code == 2


def on_terminal(*arguments: str, cwd: Path, **settings: str) -> str:
    """What a terminal shows of standard error."""
    ours, its = pty.openpty()
    with Path(os.devnull).open("w") as out:
        run_to(out.fileno(), its, *arguments, cwd=cwd, **settings)
    os.close(its)
    shown = b""
    with contextlib.suppress(OSError):  # everything is read
        while more := os.read(ours, 65_536):
            shown += more
    os.close(ours)
    return shown.decode()


def test_on_a_terminal_it_says_what_a_variable_chose(data: Path, tmp_path: Path) -> None:
    make_file(tmp_path)
    file = data / "countersink.db"
    chosen = {"COUNTERSINK_BROKER": f"sqlite:///{file}"}
    for command in ("sweep", "audit", "doctor"):
        assert on_terminal(command, cwd=tmp_path, **chosen) == f"countersink: using {file} (COUNTERSINK_BROKER)\r\n"
    assert on_terminal("sweep", cwd=tmp_path) == ""
    assert run("sweep", cwd=tmp_path, **chosen) == Done(0, "0 expired receipts deleted\n", [])
    said = on_terminal("get", "a", "--patience", "0", cwd=tmp_path, COUNTERSINK_URL="http://me:secret@127.0.0.1:1")
    assert said.startswith("countersink: using http://127.0.0.1:1 (COUNTERSINK_URL)\r\n")
    assert "secret" not in said


def test_after_a_second_of_silence_it_says_that_it_tries_again() -> None:
    (failed,) = run("get", "a", "--url", NOWHERE, "--patience", "0", cwd=None).lines
    command = [*COUNTERSINK, "get", "a", "--url", NOWHERE, "--patience", "600"]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"{failed} (trying again for up to 600 s)\n"
        process.kill()


def test_map_does_not_guess_between_a_service_and_the_data(data: Path, tmp_path: Path) -> None:
    command = ("map", "--prefix", "", "--add", "1")
    done = run(*command, cwd=tmp_path, COUNTERSINK_URL=NOWHERE)
    assert done.code == 2
    assert 'give --url "$COUNTERSINK_URL" or --data DIR' in done.lines[-1]
    assert run(*command, "--data", str(data), cwd=tmp_path, COUNTERSINK_URL=NOWHERE).code == 0
    assert run(*command, "--data", str(data), cwd=tmp_path, COUNTERSINK_URL="").code == 0
    broker = f"sqlite:///{data}/countersink.db"
    assert run(*command, cwd=tmp_path, COUNTERSINK_URL=NOWHERE, COUNTERSINK_BROKER=broker).code == 0


@pytest.mark.parametrize("command", [["set", "a", "1"], ["reset", "a"], ["delete", "a"]], ids=" ".join)
def test_an_access_key_is_no_key_of_a_change(command: list[str], data: Path) -> None:
    for key in ("csk_a_b", "cpk_a_b"):
        done = run(*command, "--key", key, "--data", str(data), cwd=None)
        assert done.code == 2
        assert "this is an access key: put it into COUNTERSINK_KEY" in done.lines[-1]
    assert run(*command, "--key", "mine", "--data", str(data), cwd=None).code == 0

"""Whatever goes wrong: one line that says what to do, and the exit code; no traceback."""

import argparse
import itertools
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from countersink_server.cli.main import parser_of_all
from countersink_server.cli.serve import _until_told
from countersink_server.cli.target import line_of
from shared.config.settings import table
from shared.model.errors import SettingsError, TransientError
from tests.cli.running import run, run_here


def test_the_version(tmp_path: Path) -> None:
    assert run_here("--version", cwd=tmp_path).out.startswith("countersink ")


def test_help_lists_every_setting_with_its_default(tmp_path: Path) -> None:
    done = run_here("--help", cwd=tmp_path)
    assert done.code == 0
    for name, default, help_ in table():
        assert f"  {name}  " in done.out
        assert f"{help_} [{default}]" in " ".join(done.out.split())
    assert "COUNTERSINK_URL" in done.out


def test_every_help_fits_100_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for wide in ("100", "300"):
        monkeypatch.setenv("COLUMNS", wide)
        for parser in parsers(parser_of_all()):
            assert [line for line in parser.format_help().splitlines() if len(line) > 100] == [], parser.prog


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers(command)


@pytest.mark.parametrize(
    "wrong", [["get", "a", "--nothing"], ["dlq", "list", "x"], ["keys", "fly"], ["map"], ["incr", "a", "--by", "x"]]
)
def test_wrong_usage_of_a_command_shows_its_own_usage(wrong: list[str], tmp_path: Path) -> None:
    done = run_here(*wrong, cwd=tmp_path)
    command = " ".join(
        ["countersink", *itertools.takewhile({"get", "dlq", "list", "keys", "map", "incr"}.__contains__, wrong)]
    )
    assert (done.code, done.out) == (2, "")
    assert done.lines[0].startswith(f"usage: {command} [-h]")
    assert done.lines[-1].startswith(f"{command}: error: ")
    assert [line for line in done.lines[1:-1] if not line.startswith(" ")] == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("up", "COUNTERSINK_BROKER"),
        ("get", "COUNTERSINK_URL"),
        *((one, "It uses the settings that countersink --help lists.") for one in ("provision", "doctor", "sweep")),
        *((f"dlq {one}", "the settings that countersink --help lists.") for one in ("list", "show", "replay", "drop")),
    ],
)
def test_help_names_the_settings_of_a_command(tmp_path: Path, command: str, said: str) -> None:
    done = run_here(*command.split(), "--help", cwd=tmp_path)
    assert done.code == 0
    assert said in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("fly",), "invalid choice: 'fly'"),
        (("up", "--port", "70000"), "must be a whole number from 0 to 65535, is '70000'"),
        (("up", "--port", "http"), "must be a whole number from 0 to 65535, is 'http'"),
        (("up", "--po", "1"), "unrecognized arguments: --po 1"),
        (("up", "--data", b"\xff"), "not UTF-8"),
        (("ingest", "--workers", "0"), "must be a whole number from 1 to 1000"),
        *(((one, "now"), "unrecognized arguments: now") for one in ("flusher", "provision", "doctor", "sweep")),
        (("incr",), "arguments are required: NAME"),
        (("incr", "a", "--by", "1.5"), "must be a whole number, is '1.5'"),
        (("incr", "a", "--by", "1_000"), "must be a whole number, is '1_000'"),
        (("map", "--prefix", "a", "--prefix", "b", "--delete"), "--prefix: it may be there once"),
        (("map", "--prefix", "", "--url", "", "--delete"), "--url: must not be empty"),
        (("list", "--prefix", "page:*"), "leave the '*' out"),
        (("list", "--data", "sqlite:////srv/a.db"), "must be the path of a folder"),
        (("up", "--data", "~/data"), "must be the path of a folder"),
        (("up", "--data", __file__), "is a file: name its folder"),
        (("keys", "new", "a", "--scope", "read", "--expires", "2027-01-31T18:00"), "as in 2027-01-31T18:00Z"),
        (("get",), "arguments are required: NAME"),
        (("get", "a", "--patience", "nan"), "must be a number of seconds"),
        (("list", "--url", "localhost:8080"), "write it as http://localhost:8080"),
        (("completion", "tcsh"), "invalid choice: 'tcsh'"),
        (("watch",), "name what to watch"),
        (("watch", "a", "--prefix", "b"), "name what to watch"),
        (("flusher", "--host", "0.0.0.0"), "--host needs --port"),
        *(
            ((one, "--admin-host", "127.0.0.1"), "--admin-host needs --admin-port")
            for one in ("up", "ingest", "flusher")
        ),
        (("up", "--statsd", "0", "--statsd-host", "unix:s"), "must be an address"),
        (("up", "--statsd-host", "127.0.0.1"), "--statsd-host needs --statsd"),
        (("up", "--statsd", "70000"), "--statsd"),
        (("doctor", "--url", "x"), "use --data DIR, or the settings"),
        (("dlq", "list", "--url"), "use --data DIR, or the settings"),
        (("status", "--data", "x"), "use --url, or countersink doctor"),
        (("keys", "list", "--data", "x"), "set COUNTERSINK_KEYS_FILE"),
        (("check", "--seconds", "0"), "--seconds: must be a number of seconds, 1 or more, is '0'"),
        (("up", "--port", "23456", "--admin-port", "23456"), "--port and --admin-port must differ"),
        (("up", "--url", "x"), "--host and --port say where it listens"),
        (("flusher", "--data", "x"), "set COUNTERSINK_BROKER"),
        (("incr", "a", "--data", "x", "--url", "y"), "not allowed with argument --data"),
        (("map", "--prefix", "", "--reset", "--url", "y", "--data", "x"), "not allowed with argument --url"),
        (("incr", "a", "--data", "x", "--wait"), "--wait needs a running service"),
    ],
)
def test_wrong_usage_exits_2(tmp_path: Path, arguments: tuple[str | bytes, ...], said: str) -> None:
    done = run_here(*arguments, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.lines[0].startswith("usage: countersink")
    assert said in done.lines[-1]


@pytest.mark.parametrize("variable", ["COUNTERSINK_BROKER", "COUNTERSINK_STORE"])
def test_saying_twice_where_the_data_is_is_wrong_usage(tmp_path: Path, variable: str) -> None:
    done = run_here("up", "--data", "x", cwd=tmp_path, **{variable: "sqlite:///y.db"})
    assert done.code == 2
    assert f"--data and {variable} both say where the data is: use one of them" in done.lines[-1]


START = ("up", "--port", "0")


@pytest.mark.parametrize(
    ("command", "variable", "value", "part"),
    [
        (START, "COUNTERSINK_MAX_COUNTERS", "page:", "must be a prefix, '=' and a rule"),
        (START, "COUNTERSINK_LINGER_MS", "soon", "must be a whole number"),
        (START, "COUNTERSINK_CACHE_TTL", "nan", "must be from 0 to 60"),
        (START, "COUNTERSINK_SHARDS", "0", "must be from 1 to"),
        (START, "COUNTERSINK_BROKER", "postgres://x", "must be sqlite:///FILE or pubsub://PROJECT/TOPIC"),
        (START, "COUNTERSINK_STORE", "sqlite://", "must be"),
        (START, "COUNTERSINK_OVERLAY", "redis://x", "must be"),
        (START, "COUNTERSINK_LOG_LEVEL", "LOUD", "must be"),
        (START, "COUNTERSINK_LINGER", "1", "is not a setting"),
        (
            (*START, "--statsd", "0"),
            "COUNTERSINK_STATSD_NAME",
            "{host}",
            "='{host}': {host} is neither {name} nor {tag.TAG}",
        ),
        *(((one,), "COUNTERSINK_RETENTION", "1", "='1': must be from 600") for one in ("provision", "sweep", "audit")),
        (("get", "a"), "COUNTERSINK_URL", "127.0.0.1:8080", "='127.0.0.1:8080'"),
    ],
)
def test_a_wrong_setting_ends_a_command_with_a_line_that_names_it(
    tmp_path: Path, command: tuple[str, ...], variable: str, value: str, part: str
) -> None:
    line = run(*command, cwd=tmp_path, **{variable: value}).refusal
    assert line.startswith(f"countersink: {variable}")
    assert part in line


def test_a_folder_for_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    line = run("check", "--history", "no/file", cwd=tmp_path).refusal
    assert f"no/file can't be written: the folder {tmp_path}/no does not exist: make it first." in line


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for command in ("up", "ingest"):
            line = run(command, "--port", port, cwd=tmp_path).refusal
            assert line == f"countersink: port {port} of 127.0.0.1 is taken: choose another with --port"


def test_behind_make_a_taken_port_says_how_make_passes_one_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for name, free in (("port", ()), ("admin-port", ("--port", "0"))):
            done = run("up", *free, f"--{name}", port, cwd=tmp_path, MAKELEVEL="1")
            assert done.lines[0].endswith(f"is taken: choose another with ARGS='--{name} …' behind make, or --{name}")


@pytest.mark.parametrize("host", ["256.0.0.1", "192.0.2.1", "a" * 70])
def test_a_host_that_is_not_here_is_one_line(tmp_path: Path, host: str) -> None:
    line = run("up", "--port", "0", "--host", host, cwd=tmp_path).refusal
    assert host in line
    assert "--host" in line


def test_a_folder_that_can_not_be_made_is_one_line_however_many_workers(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    broker = f"sqlite:///{tmp_path}/file/x.db"
    for command in (("up",), ("ingest", "--workers", "3"), ("flusher",)):
        port = () if command == ("flusher",) else ("--port", "0")
        assert str(tmp_path / "file") in run(*command, *port, cwd=tmp_path, COUNTERSINK_BROKER=broker).refusal


def test_a_worker_without_a_socket_is_one_line(tmp_path: Path) -> None:
    assert "use --workers" in run("ingest", "--worker", "77", "78", cwd=tmp_path).refusal


def test_of_tasks_that_fail_together_the_first_reason_is_said() -> None:
    group = ExceptionGroup("tasks", [ExceptionGroup("more", [TransientError("the disk\nis gone")]), KeyError("x")])
    assert line_of(group) == "the disk is gone"
    assert line_of(SettingsError("so")) == "so"
    assert line_of(FileNotFoundError(2, "No such file", "there")) == "No such file: there"


def test_a_mistake_of_ours_says_where_it_is() -> None:
    try:
        raise KeyError("x")
    except KeyError as error:
        said = line_of(error)
    assert said.startswith("a bug in Countersink in test_errors.py:")
    assert "KeyError: 'x'" in said


def test_a_signal_before_there_is_anything_to_drain_is_no_failure() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        with pytest.raises(SystemExit) as raised, _until_told():
            signal.raise_signal(signal.SIGTERM)
        assert raised.value.code == 0
        with _until_told():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)  # a second one, when all is drained
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)


def test_help_does_not_wait_for_what_only_others_need() -> None:
    heavy = {"aiohttp", "uvloop", "sqlite3", "prometheus_client", "ingest", "flusher"}
    main = "from countersink_server.cli.main import main\nwith suppress(SystemExit): main(arguments)\n"
    for arguments in (["--help"], ["get", "--help"], ["list", "--help"]):
        program = f"import sys\nfrom contextlib import suppress\narguments = {arguments}\n{main}"
        program += f"sys.exit(', '.join({heavy!r} & {{*sys.modules}}) or 0)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")

"""watch: a line on each change, also after the service was away; Ctrl-C is how it ends."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from countersink import Counter
from countersink_server.commands.watch import CounterChange, Differences, line_of
from tests.cli.running import COUNTERSINK, environment, run
from tests.cli.services import service


def counter(name: str, value: int, *, exact: bool = True, exists: bool = True) -> Counter:
    return Counter(name, value, value, 0, exact, datetime(2026, 1, 1, tzinfo=UTC), 1, exists)


def test_only_what_differs_from_the_reading_before_is_a_change() -> None:
    differences = Differences()
    first = differences.take([counter("a", 5), counter("b", 0)], 10.0)
    assert first == [CounterChange(counter("a", 5), None, None), CounterChange(counter("b", 0), None, None)]
    assert differences.take([counter("a", 5), counter("b", 0)], 11.0) == []
    assert differences.take([counter("a", 5), counter("b", 8)], 13.0) == [CounterChange(counter("b", 8), 8, 4.0)]
    assert differences.take([counter("a", 2), counter("b", 8)], 13.0)[0].difference == -3


def test_a_line_has_time_name_total_difference_and_rate() -> None:
    now = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)
    assert line_of(CounterChange(counter("a", 5), None, None), 3, now) == "12:00:05  a    5"
    assert line_of(CounterChange(counter("a", 5), -2, -0.5), 1, now) == "12:00:05  a  5  -2  -0.5/s"
    inexact = counter("a", 0, exact=False, exists=False)
    assert line_of(CounterChange(inexact, None, None), 1, now) == "12:00:05  a  0  not exact  does not exist"


@contextmanager
def watching(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = ["env", "--default-signal=INT", *COUNTERSINK, "watch", "--interval", "0.05", *arguments]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_goes_on_when_the_service_is_back_and_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with service(tmp_path) as first:
        url, port = first.url, first.url.rpartition(":")[2]
        with watching("w", "--json", "--url", url) as watch:
            assert watch.stdout is not None
            assert watch.stderr is not None
            seen = json.loads(watch.stdout.readline())
            assert (seen["name"], seen["value"], seen["difference"], seen["rate"]) == ("w", 0, None, None)
            assert run("incr", "w", "--by", "3", "--url", url, cwd=None).code == 0
            seen = json.loads(watch.stdout.readline())
            assert (seen["value"], seen["difference"], seen["rate"] > 0) == (3, 3, True)
            first.process.terminate()
            said = watch.stderr.readline()
            assert said.startswith(f"countersink: no answer from {url}: ")
            assert said.endswith(" (trying again)\n")
            with service(tmp_path, port):
                assert run("incr", "w", "--url", url, cwd=None).code == 0
                assert json.loads(watch.stdout.readline())["value"] in {3, 4}
                *_, last = iter_until(watch, "countersink: it answers again\n")
                assert last
                watch.send_signal(number)
                watch.communicate()
                assert watch.returncode == 0


def iter_until(process: "subprocess.Popen[str]", line: str) -> Iterator[str]:
    assert process.stderr is not None
    for one in process.stderr:
        yield one
        if one == line:
            return


def test_what_the_service_refuses_ends_it(tmp_path: Path) -> None:
    with service(tmp_path) as up:
        done = run("watch", "__no__", "--url", up.url, cwd=None)
    assert (done.code, len(done.lines)) == (1, 1)
    assert run("watch", "a", "--interval", "0", cwd=None).code == 2

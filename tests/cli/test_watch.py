"""watch: a line on each change, also after the service was away; Ctrl-C is how it ends."""

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from countersink import Counter
from countersink_server.cli.watch import CounterChange, Differences, WatchTable, line_of, sparkline
from deploy.processes import free_port
from tests.cli.running import COUNTERSINK, environment, run
from tests.cli.services import service


def counter(name: str, value: int, *, exact: bool = True, exists: bool = True, generation: int = 0) -> Counter:
    return Counter(name, value, value, 0, exact, datetime(2026, 1, 1, tzinfo=UTC), 1, exists, generation)


def test_only_a_new_total_is_a_change() -> None:
    differences = Differences()
    assert differences.take(counter("a", 5), 10.0) == CounterChange(counter("a", 5), None, None)
    assert differences.take(counter("b", 0), 10.0) == CounterChange(counter("b", 0), None, None)
    assert differences.take(counter("a", 5, exact=False), 11.0) is None
    assert differences.take(counter("b", 8), 12.0) == CounterChange(counter("b", 8), 8, 4.0)
    fall = differences.take(counter("a", 2), 13.0)
    assert fall is not None
    assert (fall.difference, fall.rate) == (-3, -1.0)
    was_set = counter("a", 2**40, generation=1)
    assert differences.take(was_set, 14.0) == CounterChange(was_set, 2**40 - 2, None)


def test_a_line_has_time_name_total_difference_and_rate() -> None:
    now = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)
    assert line_of(CounterChange(counter("a", 5), None, None), 3, now) == "12:00:05  a    5"
    assert line_of(CounterChange(counter("a", 5), 4, None), 1, now) == "12:00:05  a  5  +4"
    assert line_of(CounterChange(counter("a", 5), -2, -0.5), 1, now) == "12:00:05  a  5  -2  -0.5/s"
    inexact = counter("a", 0, exact=False, exists=False)
    assert line_of(CounterChange(inexact, None, None), 1, now) == "12:00:05  a  0  not exact  does not exist"


@contextmanager
def watching(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = ["env", "--default-signal=INT", *COUNTERSINK, "watch", *arguments]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_it_goes_on_when_the_service_is_back_and_ends_with_0(tmp_path: Path) -> None:
    port = str(free_port())
    with service(tmp_path, port) as first:
        url = first.url
        with watching("w", "--json", "--url", url) as watch:
            assert watch.stdout is not None
            assert watch.stderr is not None
            seen = json.loads(watch.stdout.readline())
            assert (seen["name"], seen["value"], seen["difference"], seen["rate"]) == ("w", 0, None, None)
            assert run("incr", "w", "--by", "3", "--url", url, cwd=None).code == 0
            seen = json.loads(watch.stdout.readline())
            assert (seen["value"], seen["difference"], seen["rate"] > 0) == (3, 3, True)
            first.process.send_signal(signal.SIGTERM)
            said = watch.stderr.readline()
            assert said.startswith(f"countersink: no answer from {url}: ")
            assert said.endswith(" (trying again)\n")
            with service(tmp_path, port):
                assert run("incr", "w", "--url", url, cwd=None).code == 0
                assert json.loads(watch.stdout.readline())["value"] in {3, 4}
                *_, last = iter_until(watch, "countersink: it answers again\n")
                assert last
                watch.send_signal(signal.SIGINT)
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
        assert run("watch", "__no__", "--url", up.url, cwd=None).refusal


def test_data_are_watched_without_a_service(tmp_path: Path) -> None:
    assert run("provision", "--data", str(tmp_path), cwd=None, COUNTERSINK_EXISTING="yes").code == 0
    assert run("incr", "p:a", "--by", "4", "--data", str(tmp_path), cwd=None).code == 0
    with watching("--prefix", "p:", "--json", "--data", str(tmp_path)) as watch:
        assert watch.stdout is not None
        assert json.loads(watch.stdout.readline())["value"] == 4
        assert run("incr", "p:b", "--data", str(tmp_path), cwd=None).code == 0
        assert json.loads(watch.stdout.readline())["name"] == "p:b"


def test_a_terminal_shows_a_table_that_is_drawn_over(tmp_path: Path) -> None:
    ours, its = pty.openpty()
    with service(tmp_path) as up:
        assert run("incr", "w", "--by", "1234", "--url", up.url, cwd=None).code == 0
        command = [*COUNTERSINK, "watch", "w", "--url", up.url]
        with subprocess.Popen(command, env=environment(COLUMNS="100", LINES="20"), stdout=its) as watch:
            os.close(its)
            shown = b""
            while shown.count(b"\x1b[1F") < 2:
                shown += os.read(ours, 4_096)
            assert run("incr", "w", "--url", up.url, cwd=None).code == 0
            while b"1,235  1/s" not in shown:
                shown += os.read(ours, 4_096)
            watch.send_signal(signal.SIGTERM)
            assert watch.wait(20) == 0
        os.close(ours)
    assert shown.startswith(b"w  1,234")


def test_a_table_fits_the_terminal() -> None:
    table = WatchTable()
    for number in range(5):
        assert table.take(counter(f"a long name, which is number {number}", 10**number))
    assert not table.take(counter("a long name, which is number 1", 70))
    assert table.take(counter("a long name, which is number 2", 7, generation=1))
    table.tick()
    assert table.lines(100, 10, bars=True)[1] == "a long name, which is number 1      70  60/s  █"
    assert table.lines(30, 3, bars=True) == [
        "a long name, whi…  10,000  0/s",
        "a long name, whi…   1,000  0/s",
        "and 3 more",
    ]
    table.take(counter("\x1b[2J", 1, exact=False))
    assert table.lines(100, 10, bars=False)[5].split() == ["\\x1b[2J", "1", "not", "exact"]


def test_the_highest_rate_is_a_full_bar() -> None:
    assert sparkline([0, 35, 70, -5]) == "▁▅█▁"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""

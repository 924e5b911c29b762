"""What is said to a running service: incr, get, list, set, reset, delete, shards, status and watch."""

import asyncio
import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web
from prometheus_client import generate_latest

from countersink import Counter
from countersink_server.cli.status import of_metrics
from countersink_server.cli.watch import CounterChange, Differences, WatchTable, line_of, sparkline
from countersink_server.serve.run import show_in_metrics
from deploy.processes import free_port
from shared.config.settings import Settings
from shared.model.fleet import Fleet, FlusherRecord, PublisherRecord
from shared.runtime import metrics
from shared.wiring.process import Parts
from tests.cli.running import COUNTERSINK, NOWHERE, Done, environment, run, run_to, service
from tests.unit.client.scripted import Asked, Scripted, Step, accepted, problem, says, scripted


class Shell:
    """Runs commands against one service."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *arguments: str | bytes, **settings: str) -> Done:
        return run(*arguments, cwd=None, **({"COUNTERSINK_URL": self.url} | settings))

    def said(self, *arguments: str) -> str:
        return self(*arguments).said

    def printing_to(self, output: int, *arguments: str) -> tuple[int, bytes]:
        """Its exit code, and what it says on standard error."""
        with TemporaryFile() as errors:
            code = run_to(output, errors.fileno(), *arguments, COUNTERSINK_URL=self.url)
            errors.seek(0)
            return code, errors.read()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """One for all: each test has counters of its own."""
    with service(tmp_path_factory.mktemp("data")) as up:
        yield Shell(up.url)


def test_what_is_counted_is_read(shell: Shell) -> None:
    assert shell.said("incr", "likes:1").startswith("accepted, receipt ")
    again = "  (a duplicate: this id had counted before)\n"
    assert [shell.said("incr", "likes:1", "--by", "-13", "--id", "x").endswith(again) for _ in range(2)] == [
        False,
        True,
    ]
    asked = ("incr", "likes:2", "--id", "x", "--wait")
    assert [shell.said(*asked) for _ in range(2)] == ["likes:2  1\n", f"likes:2  1{again}"]
    assert json.loads(shell.said(*asked, "--json"))["duplicate"]
    assert shell.said("get", "likes:1", "views") == "likes:1  -12\nviews      0  does not exist\n"


def test_json_is_one_object_a_line(shell: Shell) -> None:
    accepted = json.loads(shell.said("incr", "ü/1", "--json"))
    assert (accepted["accepted"], bool(accepted["receipt"]), bool(accepted["id"])) == (1, True, True)
    assert accepted["duplicate"] is False
    one, two = map(json.loads, shell.said("get", "--json", "ü/1", "json-2").splitlines())
    assert (one["name"], one["value"], one["exact"], one["exists"]) == ("ü/1", 1, True, True)
    assert one["as_of"].endswith("Z")
    assert one.keys() == {
        "name", "value", "applied", "pending", "exact", "as_of", "shards", "exists", "generation", "updated_at",
    }  # fmt: skip
    assert (two["name"], two["value"], two["exists"]) == ("json-2", 0, False)


def test_list_takes_a_prefix_is_in_order_and_aligned(shell: Shell) -> None:
    for name, by in (("p:b10", "-5"), ("p:a", "1000"), ("p:b2", "7")):
        shell.said("incr", name, "--by", by)
    assert shell.said("list", "--prefix", "p:") == "p:a    1000\np:b10    -5\np:b2      7\n"
    names = [json.loads(line)["name"] for line in shell.said("list", "--prefix", "p:b", "--json").splitlines()]
    assert names == ["p:b10", "p:b2"]
    assert shell.said("list", "--prefix", "nothing") == ""


def test_list_shows_the_largest_first_when_asked_for_the_top(shell: Shell) -> None:
    for name, by in (("t:a", "7"), ("t:b", "-5"), ("t:c", "1000"), ("t:d", "7")):
        shell.said("incr", name, "--by", by)
    assert shell.said("list", "--prefix", "t:", "--top", "3") == "t:c  1000\nt:a     7\nt:d     7\n"
    assert shell.said("list", "--prefix", "t:z", "--top", "3") == ""
    assert shell.said("list", "--prefix", "t:", "--contains", "c") == "t:c  1000\n"
    assert shell.said("list", "--contains", "nowhere") == ""
    for wrong in (("--top", "0"), ("--top", "1", "--contains", "c")):
        assert shell("list", *wrong).code == 2


def test_a_counter_is_set_reset_and_deleted(shell: Shell) -> None:
    shell.said("incr", "changed", "--by", "7")
    assert shell.said("set", "changed", "-5") == "changed  was 7, is -5\n"
    for _ in range(2):
        said = json.loads(shell.said("reset", "changed", "--key", "k", "--json"))
        assert said == {"name": "changed", "before": -5, "after": 0, "key": "k"}
    shell.said("incr", "changed")
    assert shell.said("delete", "changed") == "changed  was 1, is 0\n"
    assert shell.said("list", "--prefix", "changed") == ""

    assert shell("set", "changed", "much").code == 2
    assert shell("set", "changed", "9007199254740992").code == 1


def test_a_name_that_begins_with_a_dash_goes_after_two(shell: Shell) -> None:
    shell.said("incr", "--", "--by")
    assert shell.said("get", "--", "--by") == "--by  1\n"


def test_url_is_stronger_than_its_variable(shell: Shell) -> None:
    assert shell("get", "a", "--url", shell.url + "/", COUNTERSINK_URL=NOWHERE).code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("incr", "__reserved__"), "the counter's name must not be"),
        (("incr", b"\xff"), "the counter's name must be valid Unicode"),
        (("incr", "a", "--id", ""), "the id must be 1 to 1000 bytes"),
        (("incr", "a", "--by", "9007199254740992"), "the delta must be between"),
        (("get", "a", ""), "the counter's name must not be empty"),
    ],
)
def test_what_can_not_be_is_one_line(shell: Shell, arguments: tuple[str | bytes, ...], said: str) -> None:
    assert shell(*arguments).refusal.startswith(f"countersink: {said}")


@pytest.mark.parametrize("command", [("get", "a", "--patience", "0"), ("status",)], ids=" ".join)
def test_a_service_that_is_not_there_is_one_line(command: tuple[str, ...]) -> None:
    """Status does not wait for it."""
    assert run(*command, "--url", NOWHERE, cwd=None).refusal == (
        f"countersink: no answer from {NOWHERE}: Connection refused. Is it running, and is the URL right?"
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("incr", "a", "--id", "x1"), "right? Repeat the command with --id x1: it counts once"),
        (("reset", "a", "--idempotency-key", "x1"), "Repeat the command with --idempotency-key x1: it happens once"),
    ],
)
def test_what_may_count_or_change_says_how_to_send_it_again(shell: Shell, command: tuple[str, ...], said: str) -> None:
    assert shell(*command, "--url", NOWHERE, "--patience", "0.1").refusal.endswith(said)


async def test_what_the_service_says_ends_before_what_to_do() -> None:
    async with scripted(problem(507, "the disk is full")) as server:
        done = await ask(server, "incr", "a", "--id", "x1", "--patience", "0")
    assert "the disk is full. Repeat the command with --id x1" in done.refusal


def test_a_reader_that_has_seen_enough_is_no_error(shell: Shell) -> None:
    shell.said("incr", "a")
    reading, writing = os.pipe()
    os.close(reading)
    assert shell.printing_to(writing, "list") == (0, b"")
    os.close(writing)


def test_shards_are_raised_and_compacted(shell: Shell) -> None:
    shell.said("incr", "sharded", "--by", "5")
    assert shell.said("shards", "sharded", "6") == "sharded  has 6 shards\n"
    assert shell.said("shards", "sharded", "2") == "sharded  has 6 shards\n"
    assert json.loads(shell.said("shards", "sharded", "--compact", "2", "--json")) == {"name": "sharded", "shards": 2}
    assert shell.said("get", "sharded") == "sharded  5\n"
    for wrong in (("shards", "sharded"), ("shards", "sharded", "2", "--compact", "1"), ("shards", "sharded", "x")):
        assert shell(*wrong).code == 2
    assert shell("shards", "sharded", "0").refusal


def test_an_output_that_can_not_be_written_is_one_line(shell: Shell) -> None:
    with Path("/dev/full").open("w") as full:
        code, said = shell.printing_to(full.fileno(), "incr", "full")
    assert code == 1
    assert said.startswith(b"countersink: standard output can't be written: No space left on device. If the command")
    assert shell.said("get", "full") == "full  1\n"


def test_a_command_whose_output_is_closed_does_nothing(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *COUNTERSINK, "keys", "new", "b", "--scope", "read"]
    done = subprocess.run(
        command, env=environment(COUNTERSINK_KEYS_FILE=str(keys)), capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, keys.exists()) == (1, False)
    assert done.stderr.startswith(b"countersink: standard output is closed")


def test_notes_go_nowhere_if_the_output_for_errors_is_closed(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *COUNTERSINK, "keys", "list", "--json"]
    settings = environment(COUNTERSINK_KEYS_FILE=str(tmp_path / "keys.json"))
    done = subprocess.run(command, env=settings, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


def test_a_terminal_of_few_characters_shows_the_others_as_numbers(shell: Shell) -> None:
    shell.said("incr", "\N{SNOWMAN}")
    done = shell("get", "\N{SNOWMAN}", PYTHONIOENCODING="ascii")
    assert (done.code, done.out) == (0, "\\u2603  1\n")


FIELDS = {
    *("url", "version", "ready", "why_not", "since", "broker", "store", "overlay", "accepted", "applied", "pending"),
    "deduplicated",
    *("waiting", "oldest_pending_seconds", "oldest_held_seconds", "dead_lettered", "drift", "spooling", "inexact"),
    *("members", "jobs", "untold"),
}


def test_status_tells_what_the_service_is_and_does(tmp_path: Path) -> None:
    with service(tmp_path) as up:
        shell = Shell(up.url)
        assert shell.said("incr", "a", "--by", "5", "--wait") == "a  5\n"
        said, text = json.loads(shell.said("status", "--json")), shell.said("status")
    assert said.keys() == FIELDS
    assert (said["url"], said["ready"]) == (up.url, True)
    assert (said["broker"], said["store"], said["overlay"]) == ("sqlite", "sqlite", "sqlite")
    assert (said["accepted"], said["applied"], said["dead_lettered"]) == (1, 1, 0)
    assert (said["jobs"], said["untold"]) == ([], [])
    assert said["since"].endswith("Z")
    assert text.startswith(f"service      {up.url}, version ")
    assert "1 accepted here since the start; 1 applied\n" in text
    assert "jobs         none runs" in text
    assert "dead         none here since the start; countersink dlq list shows all" in text


def test_second_uses_of_an_id_are_no_loss(tmp_path: Path) -> None:
    with service(tmp_path) as up:
        shell = Shell(up.url)
        for name in "aaba":
            shell.said("incr", name, "--id", "x", "--wait")
        said, text = json.loads(shell.said("status", "--json")), shell.said("status")
    assert "4 accepted here since the start; 2 applied, 2 duplicates (ids used again)\n" in text
    assert (said["accepted"], said["applied"], said["deduplicated"], said["drift"]) == (4, 2, 2, 0)


def by_path(answers: dict[str, Callable[[], web.StreamResponse]]) -> Step:
    """What a service answers that has these paths, and its version."""

    def answer(asked: Asked) -> web.StreamResponse:
        there = {"/version": says(200, {"version": "1"}), **answers}
        return there.get(asked.path, problem(404, "there is no such path"))()

    return answer


async def ask(server: Scripted, *command: str) -> Done:
    return await asyncio.to_thread(run, *command, "--url", server.url, cwd=None)


async def test_another_program_is_no_service() -> None:
    async with scripted(says(200, b"<html>")) as server:
        done = await ask(server, "status")
    assert done.refusal == f"countersink: {server.url} does not answer as Countersink does: is the URL right?"


async def test_a_service_that_is_not_ready_is_shown_and_fails() -> None:
    async with scripted(by_path({"/readyz": problem(507, "the disk is full")})) as server:
        done = await ask(server, "status")
    assert (done.code, done.lines) == (1, [f"countersink: the service is not ready: the disk is full ({server.url})"])
    assert done.out.startswith(f"service      {server.url}, version 1, NOT READY\n")


def test_status_says_what_a_key_may_not_see(tmp_path: Path) -> None:
    keys = {"COUNTERSINK_KEYS_FILE": str(tmp_path / "keys.json")}
    key = run("keys", "new", "writer", "--scope", "write", cwd=None, **keys).out.strip()
    with service(tmp_path / "data", **keys) as guarded:
        shell = Shell(guarded.url)
        done = shell("status", "--json", COUNTERSINK_KEY=key)
        assert done.code == 0
        said = json.loads(done.out)
        assert (said["accepted"], said["since"], said["jobs"]) == (None, None, None)
        assert [why.partition(":")[0] for why in said["untold"]] == ["metrics", "jobs"]
        may_not_read = shell("incr", "a", "--wait", COUNTERSINK_KEY=key)
        assert may_not_read.out.startswith("applied, receipt ")


@pytest.mark.parametrize(
    ("state", "said"),
    [("pending", "it counts when a flusher has applied it"), ("dead-lettered", "its receipt is dead-lettered")],
)
async def test_an_increment_that_is_not_applied_in_time_is_an_error_that_says_so(state: str, said: str) -> None:
    async with scripted(accepted(), says(200, {"state": state}), accepted(), says(200, {"state": state})) as server:
        text = await ask(server, "incr", "slow", "--wait", "1")
        as_json = await ask(server, "incr", "slow", "--wait", "1", "--json")
    assert text.refusal.startswith(f"countersink: accepted, not applied after 1 s; {said}: receipt r")
    assert as_json.code == 1
    assert json.loads(as_json.out)["state"] == state
    assert server.asked[0].path == "/v1/counters/slow?wait=applied&timeout=1.000"


def test_an_increment_is_applied_before_its_total_is_shown(shell: Shell) -> None:
    said = json.loads(shell.said("incr", "quick", "--wait", "--json"))
    assert said.keys() == {"accepted", "receipt", "id", "duplicate", "state", "value"}
    assert (said["state"], said["value"]) == ("applied", 1)
    assert shell("incr", "quick", "--wait", "soon").code == 2


METRICS = """countersink_start_time_seconds{{broker="{broker}",overlay="o",store="s"}} 1
countersink_accepted_increments_total 877.0
countersink_applied_increments_total {applied}
countersink_deduplicated_increments_total 0.0
countersink_dead_lettered_messages_total 0.0
countersink_pulled_messages_total {pulled}
countersink_inexact_reads_total {pulled}
"""


@pytest.mark.parametrize(
    ("broker", "pulled", "applied", "said"),
    [
        ("pubsub", 0, 0, ["only flushers know how many are applied", "dead         only flushers know"]),
        (
            "pubsub",
            1,
            800,
            [
                "800 applied\n",
                "dead         none here since the start; countersink dlq list shows all",
                "reads        1 was not exact since the start; countersink doctor says",
            ],
        ),
        ("sqlite", 0, 1_089, ["1,089 applied, including some that were accepted before", "dead         none here"]),
    ],
)
async def test_status_does_not_say_that_what_a_process_does_not_know_is_nothing(
    broker: str, pulled: int, applied: int, said: list[str]
) -> None:
    shown = METRICS.format(broker=broker, pulled=pulled, applied=applied)

    answers = {"/readyz": says(200, {}), "/metrics": says(200, shown.encode()), "/v1/jobs": says(200, {"jobs": []})}
    async with scripted(by_path(answers)) as server:
        text = (await ask(server, "status")).out
        as_json = json.loads((await ask(server, "status", "--json")).out)
    for part in said:
        assert part in text
    knows = broker == "sqlite" or pulled
    names = ("applied", "deduplicated", "dead_lettered")
    assert [as_json[name] for name in names] == ([applied, 0, 0] if knows else [None, None, None])


def test_the_parts_of_a_process_and_the_fleet_are_in_its_metrics() -> None:
    fleet = Fleet(members={"a": PublisherRecord(), "b": PublisherRecord()}, flushers={"c": FlusherRecord()})
    looks = SimpleNamespace(last=None)
    settings = Settings(broker="pubsub://p/t?subscription=s", store="datastore://p", overlay="redis://me:secret@host")
    try:
        show_in_metrics(cast(Parts, SimpleNamespace(looks=looks)), settings)
        found = of_metrics(generate_latest(metrics.REGISTRY).decode())
        assert (found["broker"], found["store"], found["overlay"]) == ("pubsub", "datastore", "redis")
        assert found["members"] == {"ingest": 0, "flusher": 0}
        looks.last = SimpleNamespace(fleet=fleet)
        found = of_metrics(generate_latest(metrics.REGISTRY).decode())
        assert found["members"] == {"ingest": 2, "flusher": 1}
    finally:
        metrics.START.clear()
        metrics.MEMBERS.clear()


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


def test_a_line_of_a_watch_has_time_name_total_difference_and_rate() -> None:
    now = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)
    assert line_of(CounterChange(counter("a", 5), None, None), 3, now) == "12:00:05  a    5"
    assert line_of(CounterChange(counter("a", 5), 4, None), 1, now) == "12:00:05  a  5  +4"
    assert line_of(CounterChange(counter("a", 5), -2, -0.5), 1, now) == "12:00:05  a  5  -2  -0.5/s"
    inexact = counter("a", 0, exact=False, exists=False)
    assert line_of(CounterChange(inexact, None, None), 1, now) == "12:00:05  a  0  not exact  does not exist"


@contextmanager
def watching(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = ["env", "--default-signal=INT,HUP", *COUNTERSINK, "watch", *arguments]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_watch_goes_on_when_the_service_is_back_and_ends_with_0(tmp_path: Path) -> None:
    port = str(free_port())
    with service(tmp_path, port) as first:
        shell = Shell(first.url)
        with watching("w", "--json", "--url", shell.url) as watch:
            assert watch.stdout is not None
            assert watch.stderr is not None
            seen = json.loads(watch.stdout.readline())
            assert (seen["name"], seen["value"], seen["difference"], seen["rate"]) == ("w", 0, None, None)
            shell.said("incr", "w", "--by", "3")
            seen = json.loads(watch.stdout.readline())
            assert (seen["value"], seen["difference"], seen["rate"] > 0) == (3, 3, True)
            first.process.send_signal(signal.SIGTERM)
            said = watch.stderr.readline()
            assert said.startswith(f"countersink: no answer from {shell.url}: ")
            assert said.endswith(" (trying again)\n")
            with service(tmp_path, port):
                shell.said("incr", "w")
                assert json.loads(watch.stdout.readline())["value"] in {3, 4}
                assert "countersink: it answers again\n" in watch.stderr
                watch.send_signal(signal.SIGINT)
                watch.communicate()
                assert watch.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_the_end_of_its_terminal_ends_a_watch(shell: Shell, number: signal.Signals) -> None:
    with watching("w", "--json", "--url", shell.url) as watch:
        assert watch.stdout is not None
        watch.stdout.readline()
        watch.send_signal(number)
        assert watch.communicate(timeout=20) == ("", "")
        assert watch.returncode == 0


def test_what_the_service_refuses_ends_a_watch(shell: Shell) -> None:
    assert shell("watch", "__no__").refusal


def test_data_are_watched_without_a_service(tmp_path: Path) -> None:
    assert run("provision", "--data", str(tmp_path), cwd=None, COUNTERSINK_EXISTING="yes").code == 0
    assert run("incr", "p:a", "--by", "4", "--data", str(tmp_path), cwd=None).code == 0
    with watching("--prefix", "p:", "--json", "--data", str(tmp_path)) as watch:
        assert watch.stdout is not None
        assert json.loads(watch.stdout.readline())["value"] == 4
        assert run("incr", "p:b", "--data", str(tmp_path), cwd=None).code == 0
        assert json.loads(watch.stdout.readline())["name"] == "p:b"


def test_a_terminal_shows_a_table_that_is_drawn_over(shell: Shell) -> None:
    ours, its = pty.openpty()
    shell.said("incr", "w", "--by", "1234")
    command = [*COUNTERSINK, "watch", "w", "--url", shell.url]
    with subprocess.Popen(command, env=environment(COLUMNS="100", LINES="20"), stdout=its) as watch:
        os.close(its)
        shown = b""
        while shown.count(b"\x1b[1F") < 2:
            shown += os.read(ours, 4_096)
        shell.said("incr", "w")
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

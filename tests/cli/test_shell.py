"""incr, get, list, set, reset, delete and shards against a running service."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from tests.cli.running import Done, run, run_to
from tests.cli.services import service
from tests.cli.test_targets import NOWHERE


class Shell:
    """Runs commands against one service."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *arguments: str | bytes, **settings: str) -> Done:
        return run(*arguments, cwd=None, **({"COUNTERSINK_URL": self.url} | settings))

    def said(self, *arguments: str) -> str:
        done = self(*arguments)
        assert (done.code, done.lines) == (0, [])
        return done.out

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


def test_a_service_that_is_not_there_is_one_line(shell: Shell) -> None:
    assert shell("get", "a", "--url", NOWHERE, "--patience", "0").refusal == (
        f"countersink: no answer from {NOWHERE}: Connection refused. Is it running, and is the URL right?"
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("incr", "a", "--id", "x1"), "Repeat the command with --id x1: it counts once"),
        (("reset", "a", "--idempotency-key", "x1"), "Repeat the command with --idempotency-key x1: it happens once"),
    ],
)
def test_what_may_count_or_change_says_how_to_send_it_again(shell: Shell, command: tuple[str, ...], said: str) -> None:
    assert shell(*command, "--url", NOWHERE, "--patience", "0.1").refusal.endswith(said)


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
        assert shell.printing_to(full.fileno(), "get", "a") == (1, b"countersink: No space left on device\n")


def test_a_terminal_of_few_characters_shows_the_others_as_numbers(shell: Shell) -> None:
    shell.said("incr", "\N{SNOWMAN}")
    done = shell("get", "\N{SNOWMAN}", PYTHONIOENCODING="ascii")
    assert (done.code, done.out) == (0, "\\u2603  1\n")

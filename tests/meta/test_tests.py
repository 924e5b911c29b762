"""The machinery of the tests: mutations change what they name, the loop leaves nothing open, `make test` helps."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections import Counter

import pytest

from tests.meta.checkout import ROOT
from tests.mutations.mutation import MUTATIONS, Mutation, UselessMutationError, calling, changes, instead, text
from tests.mutations.table import by_name
from tests.world.patient_loop import PatientLoop


def test_each_mutation_changes_what_it_names() -> None:
    for one in by_name().values():
        assert len(changes(one)) == len(one.places), one.name


def test_the_tests_that_must_notice_mutations_are_there() -> None:
    for one in by_name().values():
        paths = [argument for argument in one.caught_by if argument.startswith("tests/")]
        assert paths, one.name
        assert [path for path in paths if not (ROOT / path.partition("::")[0]).exists()] == [], one.name


def test_no_two_mutations_have_the_same_name() -> None:
    assert [name for name, number in Counter(one.name for one in MUTATIONS).items() if number > 1] == []


@pytest.mark.parametrize(
    ("place", "make"),
    [
        ("shared.model.words.gone", instead(1)),
        ("tests.world.memory.store.MemoryStore.gone", instead(1)),
        ("shared.gone.was_compacted", instead(1)),
        ("shared.model.words.was_compacted", lambda there: there),
        ("shared.model.words.was_compacted", calling(choose=None)),
        ("shared.sqlite.store._CHANGE", text("what is not there", "")),
        ("shared.sqlite.store._CHANGE", text("counter", "")),
        ("shared.sqlite.store._CHANGE", text("INSERT", "INSERT")),
    ],
)
def test_a_mutation_that_would_do_nothing_is_refused(place: str, make: object) -> None:
    with pytest.raises(UselessMutationError):
        changes(Mutation("useless", (place,), make, ()))  # type: ignore[arg-type] # all of them can be called


def test_a_connection_that_nobody_closes_ends_with_the_loop() -> None:
    """So is one that a server accepts while it closes."""
    client = socket.socket()

    async def play() -> None:
        accepted = asyncio.Event()

        class Nobody(asyncio.Protocol):
            def connection_made(self, _: asyncio.BaseTransport) -> None:
                accepted.set()

        server = await asyncio.get_running_loop().create_server(Nobody, "127.0.0.1", 0)
        client.connect(server.sockets[0].getsockname())
        await accepted.wait()
        server.close()

    with client, contextlib.suppress(ConnectionResetError):
        client.settimeout(10)
        with asyncio.Runner(loop_factory=PatientLoop) as runner:
            runner.run(play())
        assert client.recv(1) == b""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            [],
            "No test of make test matches '-n 0 -k no_such tests/unit/statsd'. Perhaps make check has it: make check ",
        ),
        (["--check"], "Perhaps make test has it: make test ARGS='-n 0 -k no_such tests/unit/statsd'"),
    ],
)
def test_if_no_test_matches_it_says_where_it_may_be(options: list[str], said: str) -> None:
    arguments = ["-n", "0", "-k", "no_such", "tests/unit/statsd"]
    command = [sys.executable, "-m", "tests", *options, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert said in done.stdout

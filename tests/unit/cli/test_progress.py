"""What a command says while it goes on: of a service that does not answer, and how far a job is. It says only what it
has a basis for.
"""

import asyncio
import logging
from datetime import UTC, datetime
from io import StringIO

import pytest

from countersink import JobStatus, UnavailableError
from countersink_server.cli import target
from countersink_server.cli.main import main
from countersink_server.cli.output import Bar, JobPace, lasting, line
from countersink_server.cli.target import PatientClient
from tests.http.both_ways import poll
from tests.unit.client.scripted import COUNTER, problem, says, scripted


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause of the machine makes a command say something."""
    monkeypatch.setattr(target, "SILENCE", 60.0)
    monkeypatch.setattr("countersink.client.ONE_TRY", 120.0)


async def test_a_quick_answer_needs_no_words() -> None:
    said: list[str] = []
    async with (
        scripted(problem(503, "busy"), says(200, COUNTER)) as server,
        PatientClient(server.url, patience=60, shown="it", say=said.append) as client,
    ):
        assert (await client.get("a")).value == 1
    assert said == []


async def test_it_says_what_is_wrong_and_that_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "SILENCE", 0.2)
    monkeypatch.setattr(target, "AGAIN", 0.3)
    said: list[str] = []
    async with (
        scripted(problem(503, "busy")) as server,
        PatientClient(server.url, patience=60, shown="it", say=said.append) as client,
    ):
        asked = asyncio.create_task(client.get("a"))
        await poll(lambda: len(said) >= 2)
        server.script[:] = [says(200, COUNTER)]
        await asked
    *trying, last = said
    assert set(trying) == {"countersink: busy (trying again for up to 60 s)"}
    assert last == "countersink: it answers again"


@pytest.mark.parametrize("more", [[], ["--top", "1"], ["--json"]])
async def test_a_list_that_may_lack_counters_says_so(capfd: pytest.CaptureFixture[str], more: list[str]) -> None:
    pages = [
        says(200, {"counters": [COUNTER | {"name": name}], "next_page_token": token, "exact": token is None})
        for name, token in (("a", "t"), ("b", None))
    ]
    if "--top" in more:
        pages = [says(200, {"counters": [COUNTER | {"name": "a"}], "next_page_token": None, "exact": False})]
    async with scripted(*pages) as server:
        await asyncio.to_thread(main, ["list", "--url", server.url, *more])
    out, err = capfd.readouterr()
    assert out.count("\n") == (1 if "--top" in more else 2)
    assert err == "countersink: the list may lack counters that are not in the database yet\n"


async def test_a_service_that_hangs_is_waited_for_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "SILENCE", 0.2)
    said: list[str] = []
    async with (
        scripted("hang") as server,
        PatientClient(server.url, patience=float("inf"), shown="http://here", say=said.append) as client,
    ):
        asked = asyncio.create_task(client.get("a"))
        await poll(lambda: said)
        asked.cancel()
    assert said == ["countersink: waiting for an answer from http://here"]


async def test_a_failure_in_the_end_is_raised_and_the_log_is_left_as_it_was() -> None:
    said: list[str] = []
    log = logging.getLogger("countersink.client")
    async with PatientClient("http://127.0.0.1:1", patience=0, shown="it", say=said.append) as client:
        with pytest.raises(UnavailableError):
            await client.get("a")
    assert said == []
    assert (log.level, log.handlers, log.propagate) == (logging.NOTSET, [], True)


def job(share: float, visited: int) -> JobStatus:
    return JobStatus(
        id="j", kind="add", prefix="", delta=1, shards=None, state="running", visited=visited, changed=visited,
        failed=0, examples=(), tasks=1, open=1, depth=1, share=share, started=datetime.now(UTC), finished=None,
        reason=None,
    )  # fmt: skip


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def pace_of(*looks: tuple[float, int, float]) -> JobPace:
    pace = JobPace()
    for look in looks:
        pace.take(*look)
    return pace


def test_the_line_says_share_rate_and_what_is_left() -> None:
    assert line(job(0.5, 12_000), pace_of((0, 2_000, 0.25), (10, 12_000, 0.5))) == (
        "[############............]  50%  12,000 counters  1,000/s  about 20 s left"
    )
    assert [lasting(seconds) for seconds in (1.4, 119, 150, 7_300)] == ["1 s", "119 s", "2 min", "2 h"]


@pytest.mark.parametrize("looks", [[], [(0.0, 0, 0.0)], [(0, 0, 0.0), (0.1, 900, 0.07)], [(0, 5, 0.1), (9, 5, 0.1)]])
def test_without_a_basis_there_is_no_estimate(looks: list[tuple[float, int, float]]) -> None:
    """At the start of a job, and while nothing moves."""
    text = line(job(0.07, 900), pace_of(*looks))
    assert text == f"[#{'.' * 23}]   7%  900 counters"


def test_only_the_last_seconds_count() -> None:
    """A fast start says nothing about the rest: the job has stood at 1 % a second for a while."""
    pace = pace_of(
        (0, 0, 0.0), (1, 40_000, 0.4), *((float(second), 40_000, 0.4 + second / 100) for second in range(2, 31))
    )
    left = pace.left()
    assert left is not None
    assert left == pytest.approx(30.0)
    assert pace.rate() is None


def test_nothing_is_left_only_at_the_end() -> None:
    nearly = pace_of((0, 0, 0.0), (10, 10_000, 0.9999))
    text = line(job(0.9999, 10_000), nearly)
    assert "  99%  " in text
    assert text.endswith("about 1 s left")


def test_a_slow_job_has_a_rate_too() -> None:
    assert "  0.2/s  " in line(job(0.5, 3), pace_of((0, 1, 0.25), (10, 3, 0.5)))


def test_the_bar_is_for_terminals_and_leaves_nothing() -> None:
    terminal, file = Terminal(), StringIO()
    for stream in (terminal, file):
        bar = Bar(stream)
        bar.show(job(0.9, 1_000), 0.0)
        bar.show(job(1.0, 2_000), 5.0)
        bar.end()
    assert file.getvalue() == ""
    *_, longest, spaces, nothing = terminal.getvalue().split("\r")
    assert longest.startswith("[####")
    assert (spaces, nothing) == (" " * len(longest), "")


def test_a_note_replaces_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    bar = Bar()
    bar.show(job(0.5, 1), 0.0)
    bar.note("no answer")
    *_, bar_itself, spaces, noted = terminal.getvalue().split("\r")
    assert (spaces, noted) == (" " * len(bar_itself), "no answer\n")

"""What a command says while it waits for an answer: nothing for a second, then at most every five."""

import asyncio
import logging

import pytest

from countersink import UnavailableError
from countersink_server.cli import target
from countersink_server.cli.main import main
from countersink_server.cli.target import PatientClient
from tests.unit.client.scripted import problem, says, scripted

COUNTER = {"name": "a", "value": 1, "applied": 1, "pending": 0, "exact": True, "shards": 1, "exists": True}
COUNTER |= {"as_of": "2026-01-01T00:00:00Z"}


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
        while len(said) < 2:
            await asyncio.sleep(0.01)
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
        while not said:
            await asyncio.sleep(0.01)
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

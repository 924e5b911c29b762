"""status: what a running service is and does, as far as a key may see it; and incr --wait."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web
from prometheus_client import generate_latest

from countersink_server.cli.status import of_metrics
from countersink_server.serve.run import show_in_metrics
from shared.config.settings import Settings
from shared.model.fleet import Fleet, FlusherRecord, PublisherRecord
from shared.runtime import metrics
from shared.wiring.process import Parts
from tests.cli.running import run
from tests.cli.services import Service, service
from tests.cli.test_targets import NOWHERE
from tests.unit.client.scripted import Asked, accepted, problem, says, scripted

FIELDS = {
    *("url", "version", "ready", "why_not", "since", "broker", "store", "overlay", "accepted", "applied", "pending"),
    "deduplicated",
    *("waiting", "oldest_pending_seconds", "oldest_held_seconds", "dead_lettered", "drift", "spooling", "inexact"),
    *("members", "jobs", "untold"),
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("data")) as running:
        yield running


def test_it_tells_what_the_service_is_and_does(up: Service) -> None:
    assert run("incr", "a", "--by", "5", "--wait", "--url", up.url, cwd=None).out == "a  5\n"
    done = run("status", "--json", "--url", up.url, cwd=None)
    assert (done.code, done.lines) == (0, [])
    said = json.loads(done.out)
    assert said.keys() == FIELDS
    assert (said["url"], said["ready"], said["broker"], said["store"], said["overlay"]) == (
        up.url,
        True,
        *("sqlite", "sqlite", "sqlite"),
    )
    assert (said["accepted"], said["applied"], said["dead_lettered"]) == (1, 1, 0)
    assert (said["jobs"], said["untold"]) == ([], [])
    assert said["since"].endswith("Z")
    text = run("status", "--url", up.url, cwd=None).out
    assert text.startswith(f"service      {up.url}, version ")
    assert "1 accepted here since the start; 1 applied\n" in text
    assert "jobs         none runs" in text
    assert "dead         none here since the start; countersink dlq list shows all" in text


def test_second_uses_of_an_id_are_no_loss(tmp_path: Path) -> None:
    with service(tmp_path) as up:
        for name in "aab":
            assert run("incr", name, "--id", "x", "--wait", "--url", up.url, cwd=None).code == 0
        assert run("incr", "a", "--id", "x", "--wait", "--url", up.url, cwd=None).code == 0
        text = run("status", "--url", up.url, cwd=None).out
        said = json.loads(run("status", "--json", "--url", up.url, cwd=None).out)
    assert "4 accepted here since the start; 2 applied, 2 duplicates (ids used again)\n" in text
    assert (said["accepted"], said["applied"], said["deduplicated"], said["drift"]) == (4, 2, 2, 0)


def test_without_a_service_it_fails_at_once() -> None:
    said = run("status", "--url", NOWHERE, cwd=None).refusal
    assert f"no answer from {NOWHERE}: Connection refused" in said


async def test_another_program_is_no_service() -> None:
    async with scripted(says(200, b"<html>")) as server:
        done = await asyncio.to_thread(run, "status", "--url", server.url, cwd=None)
    assert done.refusal == f"countersink: {server.url} does not answer as Countersink does: is the URL right?"


async def test_a_service_that_is_not_ready_is_shown_and_fails() -> None:
    def answer(asked: Asked) -> web.StreamResponse:
        answers = {"/version": says(200, {"version": "1"}), "/readyz": problem(507, "the disk is full")}
        return answers.get(asked.path, problem(404, "there is no such path"))()

    async with scripted(answer) as server:
        done = await asyncio.to_thread(run, "status", "--url", server.url, cwd=None)
    assert (done.code, done.lines) == (1, [f"countersink: the service is not ready: the disk is full ({server.url})"])
    assert done.out.startswith(f"service      {server.url}, version 1, NOT READY\n")


def test_what_a_key_may_not_see_is_said(tmp_path: Path) -> None:
    keys = {"COUNTERSINK_KEYS_FILE": str(tmp_path / "keys.json")}
    key = run("keys", "new", "writer", "--scope", "write", cwd=None, **keys).out.strip()
    with service(tmp_path / "data", **keys) as guarded:
        done = run("status", "--json", cwd=None, COUNTERSINK_URL=guarded.url, COUNTERSINK_KEY=key)
        assert done.code == 0
        said = json.loads(done.out)
        assert (said["accepted"], said["since"], said["jobs"]) == (None, None, None)
        assert [why.partition(":")[0] for why in said["untold"]] == ["metrics", "jobs"]
        may_not_read = run("incr", "a", "--wait", cwd=None, COUNTERSINK_URL=guarded.url, COUNTERSINK_KEY=key)
        assert may_not_read.out.startswith("applied, receipt ")


@pytest.mark.parametrize(
    ("state", "said"),
    [("pending", "it counts when a flusher has applied it"), ("dead-lettered", "its receipt is dead-lettered")],
)
async def test_an_increment_that_is_not_applied_in_time_is_an_error_that_says_so(state: str, said: str) -> None:
    async with scripted(accepted(), says(200, {"state": state}), accepted(), says(200, {"state": state})) as server:
        command = ["incr", "slow", "--wait", "1", "--url", server.url]
        text = await asyncio.to_thread(run, *command, cwd=None)
        as_json = await asyncio.to_thread(run, *command, "--json", cwd=None)
    assert text.refusal.startswith(f"countersink: accepted, not applied after 1 s; {said}: receipt r")
    assert as_json.code == 1
    assert json.loads(as_json.out)["state"] == state
    assert server.asked[0].path == "/v1/counters/slow?wait=applied&timeout=1.000"


def test_an_increment_is_applied_before_its_total_is_shown(up: Service) -> None:
    said = json.loads(run("incr", "quick", "--wait", "--json", "--url", up.url, cwd=None).out)
    assert said.keys() == {"accepted", "receipt", "id", "duplicate", "state", "value"}
    assert (said["state"], said["value"]) == ("applied", 1)
    assert run("incr", "quick", "--wait", "soon", cwd=None).code == 2


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
        ("pubsub", 1, 800, ["800 applied\n", "dead         none here since the start; countersink dlq list shows all"]),
        ("pubsub", 1, 800, ["reads        1 was not exact since the start; countersink doctor says"]),
        ("sqlite", 0, 1_089, ["1,089 applied, including some that were accepted before", "dead         none here"]),
    ],
)
async def test_what_a_process_does_not_know_is_not_said_to_be_nothing(
    broker: str, pulled: int, applied: int, said: list[str]
) -> None:
    shown = METRICS.format(broker=broker, pulled=pulled, applied=applied)

    def answer(asked: Asked) -> web.StreamResponse:
        answers = {
            "/version": says(200, {"version": "1"}),
            "/readyz": says(200, {}),
            "/metrics": says(200, shown.encode()),
            "/v1/jobs": says(200, {"jobs": []}),
        }
        return answers[asked.path]()

    async with scripted(answer) as server:
        text = (await asyncio.to_thread(run, "status", "--url", server.url, cwd=None)).out
        as_json = json.loads((await asyncio.to_thread(run, "status", "--json", "--url", server.url, cwd=None)).out)
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

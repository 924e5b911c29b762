"""`countersink check` passes a service that keeps its promises, whatever is killed, and notices one that does not."""

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.cli.running import COUNTERSINK
from tests.http.keys import keys_file
from tests.meta.checkout import ROOT
from tests.mutations.mutation import MUTATIONS
from tests.mutations.services import CHECK
from tests.mutations.table import by_name
from tests.processes.harness import processes
from tests.processes.jepsen_counter import judge

pytestmark = pytest.mark.check
SETTINGS: Final = {
    "COUNTERSINK_WINDOWS": "=hour/90d",
    "COUNTERSINK_FLUSH_INTERVAL": "0.02",
    "COUNTERSINK_LEASE": "5",
}
"""Many commits, so that those that a service loses now and then come soon; and so does what a killed one held."""
BROKEN: Final = [
    *(one.name for one in MUTATIONS if CHECK in one.caught_by),
    "a repeated id counted twice in one commit",
    "the key of an id forgets its counter",
    "buckets have the time of the commit",
]
SECONDS: Final = 1


async def begun(url: str, *arguments: str) -> Process:
    command = ("env", "--default-signal=INT", *COUNTERSINK, "check", "--url", url, "--json", *arguments)
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)


async def ended(check: Process) -> tuple[int | None, dict[str, Any], str]:
    """Its exit code, what it printed, and its error."""
    async with asyncio.timeout(300):
        out, err = await check.communicate()
    return check.returncode, json.loads(out or b"{}"), err.decode()


async def counting(check: Process, url: str) -> None:
    """Wait until the check has counted something more there, or has ended."""
    async with aiohttp.ClientSession() as session:

        async def total() -> int:
            async with session.get(f"{url}/v1/counters", params={"limit": "1000"}) as response:
                return sum(counter["value"] for counter in (await response.json()).get("counters", ()))

        before = await total()
        while check.returncode is None and await total() <= before:
            await asyncio.sleep(0.05)


async def test_a_sound_service_passes(tmp_path: Path) -> None:
    async with processes(tmp_path / "data", None, **SETTINGS) as started:
        service = await started.start("up", "--port", "0")
        for _ in range(2):  # the ids of one check are not those of the next
            code, said, error = await ended(await begun(service.url, "--seconds", str(SECONDS)))
            assert (code, error) == (0, ""), said
            assert said["accepted"] == said["counted"] > 0
            assert said["exact_readings"] > 0
            assert said["series"] == "exact"
            assert said["ok"]
        async with aiohttp.ClientSession() as session, session.get(f"{service.url}/v1/counters") as response:
            assert (await response.json())["counters"] == [], "it deleted its counters"


async def test_counts_by_time_that_are_kept_since_a_moment_ago_are_not_judged(tmp_path: Path) -> None:
    """A file in which others counted before."""
    async with processes(tmp_path / "data", None) as started:
        service = await started.start("up", "--port", "0")
        async with aiohttp.ClientSession() as session:
            await session.post(f"{service.url}/v1/counters/before")
        await service.end(signal.SIGTERM)
    async with processes(tmp_path / "data", None, **SETTINGS) as started:
        service = await started.start("up", "--port", "0")
        code, said, error = await ended(await begun(service.url, "--seconds", str(SECONDS)))
        assert (code, error, said["series"], said["ok"]) == (0, "", "too young", True)


async def test_it_says_which_counters_remain_if_it_is_stopped(tmp_path: Path) -> None:
    async with processes(tmp_path / "data", None) as started:
        service = await started.start("up", "--port", "0")
        check = await begun(service.url, "--seconds", "60")
        await counting(check, service.url)
        check.send_signal(signal.SIGINT)
        code, said, error = await ended(check)
        assert (code, said) == (130, {})
        assert error.startswith("its counters may remain: check:")


async def test_it_says_which_counters_remain_if_the_key_may_not_delete_them(tmp_path: Path) -> None:
    file, keys = keys_file(tmp_path, counts={"scopes": ["read", "write"]})
    async with processes(tmp_path / "data", None, COUNTERSINK_KEYS_FILE=str(file), **SETTINGS) as started:
        service = await started.start("up", "--port", "0")
        code, said, _ = await ended(await begun(service.url, "--seconds", str(SECONDS), "--key", keys["counts"]))
    assert (code, said["ok"]) == (0, True)
    assert said["remain"].startswith("its counters remain (")
    assert "delete check:" in said["remain"]


async def test_it_passes_whatever_is_killed(tmp_path: Path) -> None:
    history = tmp_path / "history.edn"
    async with processes(tmp_path / "data", None, **SETTINGS) as started:
        service = await started.start("up", "--port", "0")
        check = await begun(service.url, "--seconds", "6", "--history", str(history))
        for _ in range(3):
            await counting(check, service.url)
            await service.end(signal.SIGKILL)
            service = await started.start("up", "--port", str(service.port))
        code, said, error = await ended(check)
        assert (code, error) == (0, ""), said
        assert said["without_answer"] > 0
        assert said["accepted"] <= said["counted"] <= said["accepted"] + said["unknown"]
    judged = judge(history.read_text().splitlines())
    assert judged.reads == said["exact_readings"] > 0
    assert not judged.wrong


@pytest.mark.parametrize("name", BROKEN)
async def test_it_notices_a_broken_service(tmp_path: Path, name: str) -> None:
    path = os.pathsep.join([str(ROOT / "tests" / "mutations" / "startup"), str(ROOT)])
    async with processes(tmp_path / "data", tmp_path / "log", **SETTINGS) as started:
        broken = ("env", f"TEST_MUTATION={name}", f"PYTHONPATH={path}")
        service = await started.start("up", "--port", "0", within=broken)
        for _ in range(5):  # on a busy machine, a check may send nothing that shows it
            code, said, error = await ended(await begun(service.url, "--seconds", str(SECONDS)))
            if code:
                break
        assert code == 1, said
        assert "a promise is broken" in error or "applied" in error or "counts by time did not become exact" in error
    assert name in by_name()


def test_the_judge_of_histories_sees_a_wrong_read() -> None:
    def line(index: int, kind: str, function: str, value: str, process: int) -> str:
        return (
            f'{{:index {index}, :time {index}, :type :{kind}, :f :{function}, :value ["a" {value}],'
            f" :process {process}}}"
        )

    history = [
        line(0, "invoke", "add", "3", 1),
        line(1, "ok", "add", "3", 1),
        line(2, "invoke", "add", "4", 2),
        line(3, "fail", "add", "4", 2),
        line(4, "invoke", "read", "nil", 3),
        line(5, "ok", "read", "{}", 3),
    ]
    for value in (0, 3, 7):
        found = judge([one.replace("{}", str(value)) for one in history])
        assert found.reads == 1
        assert bool(found.wrong) == (value != 3), found

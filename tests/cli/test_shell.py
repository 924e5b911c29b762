"""incr, get and list against a running service."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.processes.harness import Processes, Running, processes


class Shell:
    """Runs commands against one service."""

    def __init__(self, started: Processes, up: Running) -> None:
        self._environment = started.environment | {"COUNTERSINK_URL": up.url}
        del self._environment["COUNTERSINK_BROKER"]

    async def __call__(self, *arguments: str, **environment: str) -> tuple[int | None, str, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "countersink",
            *arguments,
            env=self._environment | environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 30)
        return process.returncode, out.decode(), err.decode()

    async def said(self, *arguments: str) -> str:
        code, out, err = await self(*arguments)
        assert (code, err) == (0, "")
        return out


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    async with processes(tmp_path) as started:
        yield Shell(started, await started.start("up", "--port", "0"))


async def test_what_is_counted_is_read(shell: Shell) -> None:
    assert "accepted, receipt" in await shell.said("incr", "likes:1")
    await shell.said("incr", "likes:1", "--by", "-3", "--id", "x")
    await shell.said("incr", "likes:1", "--by", "-3", "--id", "x")
    assert (await shell.said("get", "likes:1", "views")).split() == ["likes:1", "-2", "views", "0", "never", "seen"]


async def test_json_is_one_object_a_line(shell: Shell) -> None:
    accepted = json.loads(await shell.said("incr", "ü/1", "--json"))
    assert accepted["accepted"] == 1
    assert accepted["receipt"]
    (counter,) = map(json.loads, (await shell.said("get", "--json", "ü/1")).splitlines())
    assert (counter["name"], counter["value"], counter["exact"]) == ("ü/1", 1, True)


async def test_list_takes_a_prefix_and_is_in_order(shell: Shell) -> None:
    for name in ("b2", "a", "b1"):
        await shell.said("incr", name)
    names = [line.split()[0] for line in (await shell.said("list")).splitlines()]
    assert names == ["a", "b1", "b2"]
    names = [json.loads(line)["name"] for line in (await shell.said("list", "--prefix", "b", "--json")).splitlines()]
    assert names == ["b1", "b2"]


async def test_what_the_service_refuses_is_one_line(shell: Shell) -> None:
    code, out, err = await shell("incr", "__reserved__")
    assert (code, out) == (1, "")
    assert err.startswith("countersink: the counter's name must not be")
    assert err.count("\n") == 1


async def test_a_service_that_is_not_there_is_one_line(shell: Shell) -> None:
    code, _, err = await shell("get", "a", "--url", "http://127.0.0.1:1", "--patience", "0")
    assert code == 1
    assert err.startswith("countersink: no answer from http://127.0.0.1:1")
    assert err.count("\n") == 1


async def test_a_reader_that_has_seen_enough_is_no_error(shell: Shell) -> None:
    for name in ("a", "b"):
        await shell.said("incr", name)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "countersink",
        "list",
        env=shell._environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    process.stdout._transport.close()  # type: ignore[attr-defined] # the only way to stop reading
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert err == b""

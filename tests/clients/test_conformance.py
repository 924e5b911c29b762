"""Each client does each scenario of clients/conformance: what it counted counts once, and nothing else is lost than it
says.
"""

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from countersink import Client
from tests.clients import broken
from tests.clients.broken import BROKEN
from tests.clients.drivers import BUILDS, FOLDER, LONGEST, Built, Driver, command_in
from tests.clients.faulty import Asked, Fault, Faulty, faulty
from tests.deploy.programs import run
from tests.meta.checkout import ROOT
from tests.needs import program
from tests.processes.harness import Processes, Running, processes
from tests.world.serving import serving

Scenario = Mapping[str, Any]
SCENARIOS: Final[list[Scenario]] = json.loads((FOLDER / "scenarios.json").read_text())
OWN: Final = frozenset(("asked", "client", "fault", "service"))
"""Steps that the runner does."""
CRASHED: Final = re.compile(r"Traceback|^panic:|^    at |DATA RACE", re.MULTILINE)
MOST_ITEMS: Final = 1_000


def cases() -> list[Any]:
    return [
        pytest.param(language, scenario, id=f"{language}-{scenario['name']}")
        for language in BUILDS
        for scenario in SCENARIOS
        if language in scenario.get("languages", BUILDS)
    ]


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Processes]:
    settings = {"FLUSH_INTERVAL": "0.05", "WINDOWS": "=hour/1d", "MAX_COUNTERS": "few:=2"}
    named = {f"COUNTERSINK_{name}": value for name, value in settings.items()}
    async with processes(tmp_path / "data", tmp_path / "log", **named) as it:
        yield it


class Run:
    """A scenario while it runs."""

    def __init__(self, there: Processes, service: Running, proxy: Faulty, driver: Driver) -> None:
        self._there = there
        self._running = service
        self._port = str(service.port)
        self.proxy = proxy
        self.driver = driver
        self.said = ""

    async def step(self, step: str, arguments: Any, wanted: Mapping[str, Any] | None = None) -> None:
        if step in OWN:
            await getattr(self, f"_{step}")(arguments)
            return
        answer = await self.driver.do(step, arguments)
        if wanted is None:
            assert "error" not in answer, (step, arguments, answer)
            return
        numbers = {name: int(value) if name == "value" else value for name, value in answer.items()}
        assert {name: numbers.get(name) for name in wanted} == wanted, (step, arguments, answer)
        assert ("error" in answer) == ("status" in wanted), answer

    async def _fault(self, arguments: Any) -> None:
        self.proxy.faults.append(Fault(**arguments))

    async def _service(self, what: str) -> None:
        if what == "start":
            self._running = await self._there.start("up", "--port", self._port)
        else:
            await self._running.end(signal.SIGKILL if what == "kill" else signal.SIGTERM)

    async def _client(self, how: str) -> None:
        self.said = await self.driver.end(how)

    async def _asked(self, times: int) -> None:
        async with asyncio.timeout(LONGEST):
            while len(posts(self.proxy)) < times:
                await asyncio.sleep(0.005)


def posts(proxy: Faulty) -> list[Asked]:
    return [asked for asked in proxy.asked if asked.method == "POST"]


def between(value: int, wanted: int | list[int]) -> bool:
    least, most = wanted if isinstance(wanted, list) else (wanted, wanted)
    return least <= value <= most


def judge_requests(proxy: Faulty) -> None:
    """What holds of all requests, in every scenario."""
    bodies: dict[str, bytes] = {}
    for asked in posts(proxy):
        content = json.loads(asked.body)
        key = asked.headers.get("idempotency-key")
        if key is None:
            assert all(item["id"] for item in content), content
        else:
            assert bodies.setdefault(key, asked.body) == asked.body, f"another body under {key}"
        assert len(content["counters"] if isinstance(content, dict) else content) <= MOST_ITEMS
    assert not proxy.early, "sent again before Retry-After"


@pytest.mark.parametrize(("language", "scenario"), cases())
async def test_a_client_keeps_its_promises(
    language: str, scenario: Scenario, built: Callable[[str], Path], there: Processes
) -> None:
    await play(scenario, command_in(built(language)), there)


@pytest.mark.parametrize(
    ("url", "patience", "said"),
    [
        ("http://{0}/v1/", 60.0, "at http://{0}/v1: leave /v1 out of the URL"),
        ("https://{0}", 0.5, "https://{0} does not speak TLS: write http://{0}, or the port that does"),
    ],
    ids=["with the path", "with TLS"],
)
@pytest.mark.parametrize("language", BUILDS)
async def test_a_client_says_what_is_wrong_with_its_url(
    language: str, url: str, patience: float, said: str, *, built: Callable[[str], Path], there: Processes
) -> None:
    host = (await there.start("up", "--port", "0")).url.removeprefix("http://")
    driver = await Driver.start(command_in(built(language)), {"url": url.format(host), "patience": patience})
    assert said.format(host) in (await driver.do("get", {"name": "a"}))["error"]
    await driver.end("return")


@pytest.mark.parametrize("language", BUILDS)
async def test_what_another_program_answers_is_an_error_of_the_request(
    language: str, built: Callable[[str], Path]
) -> None:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.json_response({"detail": ["what is wrong"]}, status=422)

    async with serving(web.ServerRunner(web.Server(answer))) as port:
        driver = await Driver.start(command_in(built(language)), {"url": f"http://127.0.0.1:{port}/elsewhere"})
        said = await driver.do("get", {"name": "a"})
        assert said["status"] == 422
        await driver.end("return")


REFUSED: Final = {
    "new Client(url, 'csk_x')": "the options must be an object: new Client(url, { key })",
    "new Client(url, ['csk_x'])": "the options must be an object: new Client(url, { key })",
    "new Client(url, { apiKey: 'csk_x' })": "no option apiKey, only key, interval, most, patience, headers, tls",
    "new Client(url, { key: null })": "the key must be printable ASCII",
    "new Client(url, { key: () => undefined, patience: 0 }).get('n')": "the key must be printable ASCII",
    "new Client(url, { headers: new Map([['a', 'b']]) })": "headers must be an object",
    "new Client(url, { tls: 'ca.pem' })": "tls must be an object",
    "new Client(url, { interval: 0.2 })": "interval must be 0, or a number of at least 1; times are in milliseconds",
    "counters.incr('n', 1, 'order-1')": "the options must be an object: incr(name, by, { id })",
    "counters.incr('n', 1, { Id: 'order-1' })": "there is no option Id, only id",
    "counters.incr('n', 1, { idempotencyKey: 'order-1' })": "there is no option idempotencyKey, only id",
    "counters.flush({ timeout: 5000 })": "timeout must be a number of milliseconds",
    "counters.close('5000')": "timeout must be a number of milliseconds",
    "counters.get('n', 0)": "the options must be an object: get(name, { maxAge })",
    "counters.get('n', { max_age: 0 })": "there is no option max_age, only maxAge",
    "counters.get('n', { maxAge: '1s' })": "maxAge must be a number of milliseconds",
    "counters.getMany('t1')": "the names must be in an array: getMany([name, name])",
    "counters.getMany('t1', 'b1')": "the names must be in an array: getMany([name, name])",
    "counters.getMany(['t1'], 'b1')": "the options must be an object: getMany([name, name], { maxAge })",
    "counters.list({ prefix: 'zz:' }).next()": "the prefix must be a string",
    "counters.list('zz:', 100).next()": "the options must be an object: list(prefix, { page, contains })",
    "counters.list('zz:', { limit: 1 }).next()": "there is no option limit, only page, contains",
    "counters.list('zz:', { contains: /z/ }).next()": "contains must be a string",
    "counters.top({ prefix: 'zz:' }, 2)": "the prefix must be a string",
    "counters.series('n', 'hour')": 'the options must be an object: series(name, { by: "hour" })',
    "counters.series('n', new Date())": 'the options must be an object: series(name, { by: "hour" })',
    "counters.series('n', { begin: new Date() })": "there is no option begin, only by, from, to",
    "counters.watch('t1', 'b1').next()": "the options must be an object: watch([name, name], { signal })",
    "counters.watch('t1', AbortSignal.abort()).next()": "must be an object: watch([name, name], { signal })",
    "counters.watch({ Prefix: 'zz:' }).next()": "there is no option Prefix, only prefix",
    "counters.watch({ prefix: 7 }).next()": "the prefix must be a string",
}
"""Calls of the client for Node that could be taken for something else, and what their errors or warnings say."""


def test_the_client_for_node_refuses_what_it_could_take_for_something_else(built: Callable[[str], Path]) -> None:
    told = """
        const { Client } = require("countersink");
        const url = "http://127.0.0.1:1";
        const calls = CALLS;
        async function said(call) {
          const counters = new Client(url, { patience: 0 });
          const warned = new Promise((resolve) => process.once("warning", ({ message }) => resolve(message)));
          try {
            const answer = await call(counters);
            return counters.dropped === 1 ? await warned : `no error: ${answer}`;
          } catch (error) {
            return error.message;
          }
        }
        (async () => {
          for (const call of calls) console.log(await said(call));
        })();
    """.replace("CALLS", f"[{', '.join(f'(counters) => {call}' for call in REFUSED)}]")
    lines = run(program("node"), "-e", told, cwd=built("node")).splitlines()
    assert len(lines) == len(REFUSED)
    assert [(call, line) for (call, part), line in zip(REFUSED.items(), lines, strict=True) if part not in line] == []


async def play(scenario: Scenario, command: Built, there: Processes) -> None:
    """Do the scenario with this driver. Fails if a promise is broken."""
    service = await there.start("up", "--port", "0")

    def count(deltas: Mapping[str, int]) -> None:
        with Client(service.url) as direct:
            direct.increment_many(deltas)

    async with faulty(service.port, count) as proxy:
        driver = await Driver.start(command, {"url": proxy.url, "patience": LONGEST, **scenario.get("open", {})})
        run = Run(there, service, proxy, driver)
        try:
            for step in scenario["steps"]:
                await run.step(*step)
            if "dropped" in scenario:
                dropped = (await driver.do("dropped", {}))["dropped"]
                assert between(dropped, scenario["dropped"]), dropped
            if driver.runs:
                run.said = await driver.end("return")
        finally:
            if driver.runs:
                await driver.end("kill")
    totals = await asyncio.to_thread(counted, service.url, list(scenario["counts"]))
    assert {name: value for name, value in totals.items() if not between(value, scenario["counts"][name])} == {}
    judge_requests(proxy)
    assert len(posts(proxy)) <= scenario.get("most_asked", len(posts(proxy)))
    if "sent_as" in scenario:
        assert [asked.headers["authorization"] for asked in posts(proxy)] == [
            f"Bearer {key}" for key in scenario["sent_as"]
        ]
    assert scenario.get("says", "") in run.said
    assert not CRASHED.search(run.said), run.said


def counted(url: str, names: list[str]) -> dict[str, int]:
    with Client(url, patience=LONGEST) as direct:
        counters = direct.get_many(names, max_age=0)
    assert all(counter.exact for counter in counters)
    return {counter.name: counter.value for counter in counters}


def test_the_table_shows_what_each_language_does() -> None:
    rows = [
        f"| {one['name']} | " + " | ".join("✓" if name in one.get("languages", BUILDS) else "-" for name in BUILDS)
        for one in SCENARIOS
    ]
    text = (FOLDER / "README.md").read_text()
    assert [line.removesuffix(" |") for line in text.splitlines() if "✓" in line] == rows


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_client_is_noticed(name: str, there: Processes) -> None:
    (scenario,) = [one for one in SCENARIOS if one["name"] == BROKEN[name][1]]
    command = [sys.executable, "-S", broken.__file__, name, str(FOLDER / "driver.py")]
    with pytest.raises(AssertionError):
        await play(scenario, (command, {"PYTHONPATH": str(ROOT)}), there)

"""The log: as JSON with the names of Cloud Logging, or for people; no secret in it, and few lines of one kind."""

import asyncio
import json
import logging
import re
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from countersink_server.serve.logs import KINDS, MOST, SPELL, JsonLines, RepeatLimit, TextLines, without_secrets
from shared.runtime.traces import REQUEST, RequestContext
from tests.http.keys import keys_file
from tests.processes.harness import Processes, processes

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
CLOUD = "logging.googleapis.com"


def record(said: str, *about: object, level: int = logging.WARNING, **more: object) -> logging.LogRecord:
    found = logging.LogRecord("flusher", level, "", 0, said, about, None)
    found.__dict__.update(more)
    return found


def as_json(one: logging.LogRecord, headers: Mapping[str, str] | None = None, project: str = "") -> dict[str, Any]:
    token = REQUEST.set(None if headers is None else RequestContext(headers))
    try:
        line = JsonLines(project).format(one)
    finally:
        REQUEST.reset(token)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_has_the_names_of_cloud_logging() -> None:
    said = as_json(record("pulling failed: %s", 'no "\n way'))
    assert (said["severity"], said["message"], said["logger"]) == ("WARNING", 'pulling failed: no "\n way', "flusher")
    assert datetime.fromisoformat(said["time"]).tzinfo is not None
    assert not {"request_id", f"{CLOUD}/trace", "httpRequest"} & said.keys()


@pytest.mark.parametrize(
    ("headers", "span", "sampled"),
    [
        ({"traceparent": f"00-{TRACE}-{SPAN}-01"}, SPAN, True),
        ({"traceparent": f"00-{TRACE}-{SPAN}-00"}, SPAN, False),
        ({"X-Cloud-Trace-Context": f"{TRACE}/255;o=1"}, "00000000000000ff", True),
        ({"X-Cloud-Trace-Context": TRACE}, "0" * 16, False),
    ],
)
def test_a_line_names_the_trace_of_its_request(headers: Mapping[str, str], span: str, sampled: bool) -> None:
    said = as_json(record("no"), {**headers, "X-Request-Id": "r-1"}, "p1")
    assert said["request_id"] == "r-1"
    assert said[f"{CLOUD}/trace"] == f"projects/p1/traces/{TRACE}"
    assert (said[f"{CLOUD}/spanId"], said[f"{CLOUD}/trace_sampled"]) == (span, sampled)
    assert as_json(record("no"), headers)[f"{CLOUD}/trace"] == TRACE


@pytest.mark.parametrize("bad", ["", "x y", "a\nb", "ü", "a" * 129])
def test_an_id_or_a_trace_that_is_none_is_not_taken(bad: str) -> None:
    said = as_json(record("no"), {"X-Request-Id": bad, "traceparent": bad, "X-Cloud-Trace-Context": bad})
    assert re.fullmatch("[0-9a-f]{16}", said["request_id"])
    assert f"{CLOUD}/trace" not in said


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
        {"X-Cloud-Trace-Context": "0" * 32},
    ],
)
def test_zeros_name_no_trace(headers: Mapping[str, str]) -> None:
    assert f"{CLOUD}/trace" not in as_json(record("no"), headers)


def test_a_traceback_is_a_field() -> None:
    try:
        raise ValueError("what")
    except ValueError:
        said = as_json(record("a bug", exc_info=sys.exc_info()))
    assert said["stack_trace"].endswith("ValueError: what")


@pytest.mark.parametrize("id_", ["shop", "a.b-c_d", "a_1234567890"])
@pytest.mark.parametrize("kind", ["csk", "cpk"])
def test_no_line_has_the_secret_of_a_key(kind: str, id_: str) -> None:
    secret = "0123456789abcdef" * 4
    key = f"{kind}_{id_}_{secret}"
    for text in (
        key,
        f"Bearer {key}",
        f"/v1/counters/a?key={key}&by=1",
        f"('{key}',)",
        f"/a%2F{key}",
        f"Bearer%20{key}",
        f"_{key}",
    ):
        assert secret not in without_secrets(text)
        assert id_ in without_secrets(text)
        one = record("failed: %s", text, http={"requestUrl": text, "status": 500})
        assert secret not in json.dumps(as_json(one))
        assert secret not in TextLines().format(one)
    assert secret not in json.dumps(as_json(record("no"), {"X-Request-Id": key}))


def test_no_line_has_the_password_of_a_url() -> None:
    assert without_secrets("redis://user:pa:ss@host:1/0 is away") == "redis://…@host:1/0 is away"
    assert without_secrets("http://host/a@b and c@d") == "http://host/a@b and c@d"


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    settings = {"COUNTERSINK_KEYS_FILE": str(tmp_path / "keys.json"), "COUNTERSINK_LOG_FORMAT": "json"}
    async with processes(tmp_path, tmp_path / "log", **settings) as it:
        yield it


async def test_requests_are_logged_with_their_ids_and_no_key_ever(started: Processes, tmp_path: Path) -> None:
    """All that can go wrong with keys goes wrong; the lines of all that is logged are JSON without a secret."""
    _, keys = keys_file(
        tmp_path,
        all={},
        page={"scopes": ["write"], "publishable": True, "prefixes": ["p:"], "origins": ["https://a.example"]},
        late={"expires": "2020-01-01T00:00:00Z"},
    )
    running = await started.start("up", "--port", "0", COUNTERSINK_LOG_REQUESTS="1000", COUNTERSINK_LOG_LEVEL="DEBUG")
    wrong = keys["all"][:-8] + "00000000"
    async with aiohttp.ClientSession() as session:
        for key in (*keys.values(), wrong, "nonsense"):
            for method, target in (
                ("POST", f"/v1/counters/p:a?key={key}"),
                ("POST", f"/v1/counters/p:a?key={key}&key={key}"),
                ("POST", "/v1/counters/p:a"),
                ("PUT", "/v1/counters/p:a"),
                ("GET", f"/v1/counters/{key}"),
                ("GET", f"/{key}"),
            ):
                headers = {"Authorization": f"Bearer {key}", "X-Request-Id": "r-7", "User-Agent": f"me {key}"}
                headers |= {"traceparent": f"00-{TRACE}-{SPAN}-01", "Origin": "https://a.example"}
                data = b'{"value": 3}' if method == "PUT" else None
                async with session.request(method, running.url + target, headers=headers, data=data) as response:
                    await response.read()
    (tmp_path / "keys.json").write_text(keys["all"])  # a broken keys file
    log = tmp_path / "log"
    async with asyncio.timeout(60):
        while "the keys that were read before stay valid" not in log.read_text():
            await asyncio.sleep(0.05)
    assert await running.end(15) == 0
    text = log.read_text()
    for key in (*keys.values(), wrong):
        assert key.rpartition("_")[2] not in text
    lines = [json.loads(line) for line in text.splitlines()]
    requests = [line for line in lines if "httpRequest" in line]
    assert len(requests) == 5 * 6
    assert {200, 202, 401, 403, 404} <= {line["httpRequest"]["status"] for line in requests}
    for line in requests:
        assert (line["logger"], line["request_id"], line[f"{CLOUD}/trace"]) == ("countersink.requests", "r-7", TRACE)
        assert "?" not in line["httpRequest"]["requestUrl"]
        assert line["httpRequest"]["remoteIp"] in {"127.0.0.1", ""}
        assert re.fullmatch(r"\d+\.\d{6}s", line["httpRequest"]["latency"])
    assert [line for line in lines if line["logger"] == "countersink.audit"]


async def test_no_more_requests_are_logged_than_the_setting_says(started: Processes, tmp_path: Path) -> None:
    _, keys = keys_file(tmp_path, all={})
    running = await started.start("up", "--port", "0", COUNTERSINK_LOG_REQUESTS="2")
    headers = {"Authorization": f"Bearer {keys['all']}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for _ in range(200):
            async with session.post(f"{running.url}/v1/counters/a") as response:
                assert response.status == 202
    assert await running.end(15) == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    times = [datetime.fromisoformat(line["time"]) for line in lines if "httpRequest" in line]
    assert 2 <= len(times) <= 2 * ((times[-1] - times[0]).total_seconds() + 2)
    assert len(times) < 100


class Logged:
    def __init__(self) -> None:
        self.now = 0.0
        self.calm = RepeatLimit(lambda: self.now)

    def say(self, said: str, *about: object, level: int = logging.WARNING, name: str = "flusher") -> str | None:
        record = logging.LogRecord(name, level, "", 0, said, about, None)
        return record.getMessage() if self.calm.filter(record) else None


def test_the_first_few_are_logged_and_the_next_spell_says_how_many_were_not() -> None:
    logged = Logged()
    said = [logged.say("pulling failed: %s", number) for number in range(20)]
    assert said == [f"pulling failed: {number}" for number in range(MOST)] + [None] * (20 - MOST)
    logged.now = SPELL
    assert logged.say("pulling failed: %s", "again") == f"pulling failed: again (and {20 - MOST} like it before)"
    assert logged.say("pulling failed: %s", "once more") == "pulling failed: once more"


def test_few_are_never_touched() -> None:
    logged = Logged()
    for spell in range(10):
        logged.now = spell * SPELL
        assert [logged.say("%d%%", 1) for _ in range(MOST)] == ["1%"] * MOST


def test_kinds_do_not_silence_one_another() -> None:
    logged = Logged()
    for number in range(10 * KINDS):
        assert logged.say(f"kind {number}")
    assert all(logged.say("the same", name=f"module-{number}") for number in range(10 * MOST))


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.CRITICAL])
def test_what_was_asked_for_and_what_is_critical_is_always_logged(level: int) -> None:
    logged = Logged()
    assert all(logged.say("the same", level=level) for _ in range(10 * MOST))

"""The snippets of docs/messages.md, read out of the page, publish what counts once however often they run."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from deploy.emulators import gcloud_environment
from flusher.flush.flusher import Flusher
from flusher.flush.window import FlushPolicy
from shared.memory import ProcessOverlay
from shared.model.words import Envelope, Message
from shared.pubsub.client import PubsubPlace
from shared.pubsub.setup import provision
from shared.runtime.clock import SystemClock
from shared.wire.codec import encode
from tests.contracts.store import total
from tests.emulators.pubsub_fixtures import LEASE, Pubsub
from tests.meta.checkout import ROOT
from tests.needs import missing, program
from tests.world.flushing import tools_of
from tests.world.memory.store import MemoryStore

PAGE: Final = (ROOT / "docs" / "messages.md").read_text()
PROJECT: Final = "my-project"
NODE: Final = Path(__file__).parent / "node"
PATIENCE: Final = 120.0
ENTRY: Final = {
    "logName": "projects/my-project/logs/run.googleapis.com%2Fstderr",
    "insertId": "6f1c2b3d0004f5a1",
    "timestamp": "2026-01-01T12:00:00.123456Z",
    "receiveTimestamp": "2026-01-01T12:00:00.345678Z",
    "severity": "ERROR",
    "resource": {"type": "cloud_run_revision", "labels": {"service_name": "shop"}},
    "jsonPayload": {"message": "no stock", "counter": "not this one", "delta": 7},
}
LOGGED: Final = {"logging.googleapis.com/timestamp": "2026-01-01T12:00:00.123456Z"}
RUN: Final = "process.stdout.write(JSON.stringify({name}(JSON.parse(require('fs').readFileSync(0, 'utf8')), {{}})));"


def snippet(language: str, containing: str = "") -> str:
    """The only block in this language that contains the text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


async def run(
    *command: str | Path, environment: Mapping[str, str], given: bytes = b"", cwd: Path | None = None
) -> bytes:
    """What a command writes to its standard output. It must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await asyncio.wait_for(process.communicate(given), PATIENCE)
    assert process.returncode == 0, f"{command}\n{said.decode()}\n{errors.decode()}"
    return said


@dataclass
class Topic:
    """The page's topic, in a project of the test's own, and a flusher."""

    pubsub: Pubsub
    folder: Path

    def __post_init__(self) -> None:
        self.clock = SystemClock()
        self.store = MemoryStore(self.clock)
        tools = tools_of(self.store, self.pubsub.subscription(), ProcessOverlay(self.clock), self.clock)
        self.flusher = Flusher(tools, FlushPolicy(0.05, 100, 10_000), topic="t", lease=LEASE)

    def here(self, text: str) -> str:
        return text.replace(PROJECT, self.pubsub.place.project)

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "PUBSUB_EMULATOR_HOST": self.pubsub.host, **more}

    async def shell(self, block: str) -> bytes:
        """Run a `console` block with gcloud."""
        environment = gcloud_environment(self.folder / "gcloud") | {
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB": f"http://{self.pubsub.host}/",
        }
        return await run("bash", "-ec", self.here(block), environment=environment, cwd=self.folder)

    async def script(self, name: str, text: str) -> Path:
        path = self.folder / name
        await asyncio.to_thread(path.write_text, self.here(text))
        return path

    async def flush(self, messages: int) -> None:
        """Settle so many messages, none of which may become a dead letter."""
        async with asyncio.timeout(PATIENCE):
            while messages:
                messages -= await self.flusher.pull_once()
        await self.flusher.flush_once()
        assert not await self.pubsub.dead_letters()


@pytest.fixture
async def topic(empty_pubsub: Pubsub, tmp_path: Path) -> Topic:
    empty_pubsub.place = PubsubPlace(f"p-{uuid4().hex}", "counts", "counts-flushers")
    await provision(empty_pubsub.client(), empty_pubsub.place, lease=LEASE, retention=604_800)
    return Topic(empty_pubsub, tmp_path)


@pytest.fixture
async def node() -> Path:
    """Node's packages, installed from the lock with its hashes where they are not."""
    for tool in ("node", "npm"):
        program(tool)
    installed, lock = NODE / "node_modules" / ".package-lock.json", NODE / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        command = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
        try:
            await run(*command, environment=os.environ, cwd=NODE)
        except (AssertionError, TimeoutError) as error:
            missing(f"the packages of the snippet for Node can't be installed; is there a network? {error}")
    return NODE / "node_modules"


@pytest.mark.parametrize("order", [("console", "console", "python"), ("python", "python", "console")], ids=" ".join)
async def test_what_to_copy_first_and_the_python_snippet_count_once_together(
    topic: Topic, order: tuple[str, ...]
) -> None:
    """They have the same id, so whoever tries both on one topic sees that they count once."""
    path = await topic.script("publish.py", snippet("python"))
    for language in order:
        if language == "python":
            await run(sys.executable, path, environment=topic.environment())
        else:
            await topic.shell(snippet("console", "topics publish"))
        await topic.flush(1)
        assert await total(topic.store, "visits") == 2


async def test_the_node_snippet_counts_once(topic: Topic, node: Path) -> None:
    path = await topic.script("publish.js", snippet("js"))
    for _ in range(2):
        await run("node", path, environment=topic.environment(NODE_PATH=str(node)))
    await topic.flush(2)
    assert await total(topic.store, "visits") == 2


async def test_the_go_snippet_is_go_and_publishes_the_same(topic: Topic) -> None:
    """Its packages come from where tests can't fetch them, so it is not run."""
    program("gofmt")
    text = snippet("go")
    assert (await run("gofmt", "-e", environment=os.environ, given=text.encode())).decode() == text
    (data,) = re.findall(r"\[\]byte\(`(.*)`\)", text)
    (attributes,) = re.findall(r"map\[string\]string(\{.*\})", text)
    await topic.pubsub.publisher().publish([Message(data.encode(), json.loads(attributes))] * 2)
    await topic.flush(2)
    assert await total(topic.store, "visits") == 2


async def transformed(code: str, name: str, message: Message) -> Any:
    """What the function makes of a message, as Pub/Sub calls it: with text and attributes."""
    given = {"data": message.data.decode(), "attributes": dict(message.attributes)}
    said = await run(
        *("node", "-e", code + RUN.format(name=name)), environment=os.environ, given=json.dumps(given).encode()
    )
    return json.loads(said)


async def test_log_entries_are_counted_and_nothing_else_is_changed(topic: Topic) -> None:
    """The emulator stores a transform and does not apply it: Node does."""
    program("node")
    await topic.script("transform.yaml", snippet("yaml"))
    await topic.shell(snippet("console", "topics update"))
    stored = json.loads(await topic.shell(f"gcloud pubsub topics describe counts --project={PROJECT} --format=json"))
    (transform,) = stored["messageTransforms"]
    code, name = transform["javascriptUdf"]["code"], transform["javascriptUdf"]["functionName"]

    entries = [ENTRY, ENTRY, ENTRY | {"insertId": "another"}, {**ENTRY, "timestamp": "later", "severity": ""}]
    published = []
    for entry in entries:
        made = await transformed(code, name, Message(json.dumps(entry).encode(), LOGGED))
        published.append(Message(made["data"].encode(), made["attributes"]))
    for other in (encode(Envelope("e", {"visits": 3})), Message(b'{"counter": "visits"}')):
        made = await transformed(code, name, other)
        assert made == {"data": other.data.decode(), "attributes": dict(other.attributes)}
    await topic.pubsub.publisher().publish(published)
    await topic.flush(len(published))
    assert await total(topic.store, "log:error") == 2
    assert await total(topic.store, "log:default") == 1

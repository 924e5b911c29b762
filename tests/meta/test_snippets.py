"""What the documents tell you to type works.

`sh` and `python` blocks run against a service, in their order, page by page. A `console` block needs an account or runs
for ever: of its commands only the options are checked. Those of docs/messages.md need a topic, see
`tests.emulators.test_message_snippets`.
"""

import asyncio
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from countersink_server.cli.main import parser_of_all
from tests.meta.checkout import ROOT
from tests.processes.harness import Running, processes

PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SERVICE: Final = "http://127.0.0.1:8080"
COMMAND: Final = ".venv/bin/countersink"
NEEDS_A_TOPIC: Final = "messages"


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [(language, text) for language, text in found if language in languages]


def pages_with(*languages: str, but: str = "") -> Sequence[object]:
    return [pytest.param(page, id=page.stem) for page in PAGES if page.stem != but and blocks(page, *languages)]


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Running]:
    async with processes(tmp_path / ".countersink", None, COUNTERSINK_FLUSH_INTERVAL="0.05") as started:
        running = await started.start("up", "--port", "0")
        yield running
        assert await running.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("page", pages_with("sh", "python", but=NEEDS_A_TOPIC))
async def test_what_a_page_tells_you_to_type_works(page: Path, service: Running, tmp_path: Path) -> None:
    for language, block in blocks(page, "sh", "python"):
        text = block.replace(SERVICE, service.url).replace(COMMAND, f"{sys.executable} -m countersink")
        command = ["bash", "-ec", text] if language == "sh" else [sys.executable, "-c", text]
        environment = {
            **os.environ,
            "COUNTERSINK_URL": service.url,
            "COUNTERSINK_BROKER": f"sqlite:///{tmp_path}/.countersink/countersink.db",
            "XDG_STATE_HOME": f"{tmp_path}/.countersink-state",
            "PYTHONPATH": str(ROOT),
        }
        process = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, f"{text}\n{said.decode()}"
        assert b'"status":4' not in said, f"{text}\n{said.decode()}"


@pytest.mark.parametrize("page", pages_with("console", "sh"))
def test_commands_have_the_options_that_a_page_says(page: Path) -> None:
    for _, text in blocks(page, "console", "sh"):
        for line in text.replace("\\\n", "").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] and words[0] in {COMMAND, "countersink"}:
                assert parser_of_all().parse_args(words[1:]), line


def test_a_wrong_option_would_be_seen() -> None:
    with pytest.raises(SystemExit):
        parser_of_all().parse_args(["flusher", "--workers", "2"])

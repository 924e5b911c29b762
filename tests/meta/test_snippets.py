"""What the documents tell you to type works.

`sh` and `python` blocks run against a service, in their order, page by page. A `console` block needs an account or runs
for ever: of its commands only the options are checked, and the service has the settings that stand before `make up`.
Blocks of docs/messages.md need a topic, see `tests.emulators.test_message_snippets`.
"""

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from countersink import AsyncClient
from countersink_server.cli.main import parser_of_all
from tests.emulators.proxy import proxy
from tests.meta.checkout import ROOT
from tests.needs import program
from tests.processes.harness import Running, processes

PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SERVICE: Final = "http://127.0.0.1:8080"
COMMAND: Final = ".venv/bin/countersink"
NEEDS_A_TOPIC: Final = "messages"
WAREHOUSE: Final = ROOT / "docs" / "recipes" / "warehouse.md"
RUNS: Final = {
    "sh": ("bash", "count.sh"),
    "js": ("node", "count.mjs"),
    "go": ("go", "run", "count.go"),
    "php": ("php", "count.php"),
}
OTHER_LANGUAGES: Final = WAREHOUSE.with_name("other-languages.md")


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [(language, text) for language, text in found if language in languages]


def pages_that_run() -> Sequence[object]:
    pages = [page for page in PAGES if page.stem != NEEDS_A_TOPIC and blocks(page, "sh", "python")]
    return [pytest.param(page, id=page.stem, marks=[pytest.mark.check] if types_curl(page) else []) for page in pages]


def types_curl(page: Path) -> bool:
    return any("curl" in text for _, text in blocks(page, "sh"))


def settings_of(page: Path) -> dict[str, str]:
    """What stands before `make up` on the page."""
    commands = [shlex.split(line) for _, text in blocks(page, "console") for line in text.splitlines()]
    starts = [words[:-2] for words in commands if words[-2:] == ["make", "up"]]
    return dict(word.split("=", 1) for words in starts for word in words)


@pytest.fixture
async def service(tmp_path: Path, page: Path) -> AsyncIterator[Running]:
    settings = {"COUNTERSINK_FLUSH_INTERVAL": "0.05"} | settings_of(page)
    async with processes(tmp_path / ".countersink", None, **settings) as started:
        running = await started.start("up", "--port", "0")
        yield running
        assert await running.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("page", pages_that_run())
async def test_what_a_page_tells_you_to_type_works(page: Path, service: Running, tmp_path: Path) -> None:
    if types_curl(page):
        program("curl")
    async with AsyncClient(service.url) as counters:
        await counters.increment("counted before", wait=10)
    for language, block in blocks(page, "sh", "python"):
        text = (
            block.replace(f'"{SERVICE}")', f'"{service.url}", patience=60)')
            .replace(SERVICE, service.url)
            .replace(COMMAND, f"{sys.executable} -m countersink")
        )
        await works(["bash", "-ec", text] if language == "sh" else [sys.executable, "-c", text], service.url, tmp_path)
    if page == WAREHOUSE:
        check_tables(tmp_path)


async def works(command: Sequence[str], url: str, folder: Path) -> None:
    environment = {
        **os.environ,
        "COUNTERSINK_URL": url,
        "COUNTERSINK_BROKER": f"sqlite:///{folder}/.countersink/countersink.db",
        "XDG_STATE_HOME": f"{folder}/.countersink-state",
        "PYTHONPATH": str(ROOT),
        "GOFLAGS": "-race",  # as tests.clients build, so that Go's own packages are built once
    }
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, f"{command[-1]}\n{said.decode()}"
    assert b'"status":4' not in said, f"{command[-1]}\n{said.decode()}"


def check_tables(folder: Path) -> None:
    """The files of the page fit into the tables of the page."""
    tables = [json.loads(text) for _, text in blocks(WAREHOUSE, "json")]
    for pattern, table in zip(("totals-*.ndjson", "days-*.ndjson"), tables, strict=True):
        (file,) = folder.glob(pattern)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert lines
        assert all([*line] == [column["name"] for column in table] for line in lines), lines


@pytest.mark.check
@pytest.mark.parametrize("page", [OTHER_LANGUAGES], ids=["recipe"])
@pytest.mark.parametrize("language", RUNS)
async def test_other_languages_count_once_though_an_answer_is_lost(
    page: Path, language: str, service: Running, tmp_path: Path
) -> None:
    ((_, text),) = blocks(page, language)
    name, *arguments = RUNS[language]
    async with proxy(service.url.removeprefix("http://")) as between, asyncio.TaskGroup() as tasks:
        url = f"http://{between.address}"
        (tmp_path / arguments[-1]).write_text(text.replace(SERVICE, url))
        between.lose_answers()
        tasks.create_task(works([program(name), *arguments], url, tmp_path))
        async with asyncio.timeout(60):
            while not between.lost:
                await asyncio.sleep(0.01)
        between.cut()
    async with AsyncClient(service.url) as counters:
        assert {counter.name: counter.value async for counter in counters.list()} == {"page:home": 2, "downloads": 1}


def test_commands_have_the_options_that_pages_say() -> None:
    for text in [text for page in PAGES for _, text in blocks(page, "console")]:
        for line in text.replace("\\\n", "").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] and words[0] in {COMMAND, "countersink"}:
                assert parser_of_all().parse_args(words[1:]), line


def test_a_wrong_option_would_be_seen() -> None:
    with pytest.raises(SystemExit):
        parser_of_all().parse_args(["flusher", "--workers", "2"])

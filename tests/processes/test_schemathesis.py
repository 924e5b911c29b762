"""Schemathesis asks a running Countersink everything that its OpenAPI document allows and much that it forbids."""

import asyncio
import re
import sys
from pathlib import Path

import orjson
import pytest

from tests.http.contract import DOCUMENT
from tests.http.keys import keys_file
from tests.meta.checkout import ROOT
from tests.processes.harness import processes

pytestmark = pytest.mark.check  # half a minute of generated requests

SETTINGS = Path(__file__).with_name("schemathesis.toml")
STREAMS = ("watchCounter", "watchCounters")
"""Their answers do not end: see tests/http/test_watch.py."""


async def _ask(url: str, document: str, folder: Path, *more: str) -> tuple[int, str]:
    """What the command says. It leaves its own files where it is started."""
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(SETTINGS)]
    process = await asyncio.create_subprocess_exec(
        *(*command, "run", document, "--url", url, "--no-color", "--continue-on-failure", *more),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await process.communicate()
    except BaseException:  # nobody waits for it any more
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_the_service_is_as_it_is_described(tmp_path: Path) -> None:
    file, keys = keys_file(tmp_path, all={})
    settings = {"COUNTERSINK_KEYS_FILE": str(file), "COUNTERSINK_WINDOWS": "=minute/1d,hour/90d,day/2y"}
    async with processes(tmp_path, tmp_path / "log", **settings) as started:
        url = (await started.start("up", "--port", "0")).url
        left_out = [word for name in STREAMS for word in ("--exclude-operation-id", name)]
        code, said = await _ask(
            url, f"{url}/openapi.json", tmp_path, "--header", f"Authorization: Bearer {keys['all']}", *left_out
        )
        assert code == 0, said
        selected, total, tested = map(int, re.findall(r"Selected: (\d+)/(\d+)\s+Tested: (\d+)", said)[0])
        assert selected == tested == total - len(STREAMS), said
        for phase in ("Coverage", "Fuzzing", "Stateful"):
            assert f"✅ {phase}" in said, said
        # And would be seen if it were not.
        wrong = tmp_path / "wrong.json"
        schema = DOCUMENT["paths"]["/version"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        text, other = orjson.dumps(schema), orjson.dumps(schema | {"required": ["version", "more"]})
        wrong.write_bytes(orjson.dumps(DOCUMENT).replace(text, other))
        code, said = await _ask(url, str(wrong), tmp_path, "--include-operation-id", "version", "--max-examples", "1")
        assert code == 1, said
        assert "violates schema" in said, said

"""An ingest without Redis, beside a flusher: `?wait=applied` answers soon after the commit."""

import time
from pathlib import Path

import aiohttp
import pytest

from shared.memory import SETTLE_WITHIN
from tests.processes.fleet.pairs import Emulated
from tests.processes.harness import processes


@pytest.mark.timeout(120)
async def test_it_answers_before_the_overlay_asks_what_is_settled(on_emulators: Emulated, tmp_path: Path) -> None:
    settings = on_emulators.settings | {"COUNTERSINK_FLUSH_INTERVAL": "0.1"}
    async with processes(tmp_path, tmp_path / "log", **settings) as started, aiohttp.ClientSession() as session:
        ingest = await started.start("ingest", "--port", "0")
        await started.start("flusher")
        for number in range(1, 4):
            begun = time.monotonic()
            url = f"{ingest.url}/v1/counters/a?wait=applied&timeout=60"
            async with session.post(url, json={"id": f"id-{number}"}) as response:
                answer = await response.json()
            assert response.status == 200, answer
            assert answer["value"] == number
            assert time.monotonic() - begun < SETTLE_WITHIN

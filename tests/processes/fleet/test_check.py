"""`countersink check` passes on Google's emulators with Redis, whatever is killed."""

import signal
from pathlib import Path

from tests.emulators.redis_fixtures import RedisServer
from tests.processes.fleet.pairs import Emulated
from tests.processes.harness import processes
from tests.processes.test_check import SETTINGS, begun, counting, ended


async def test_it_passes_whatever_is_killed(on_emulators: Emulated, redis: RedisServer, tmp_path: Path) -> None:
    settings = SETTINGS | on_emulators.settings | {"COUNTERSINK_OVERLAY": redis.url}
    async with processes(tmp_path, tmp_path / "log", **settings) as started:
        ingest, flusher = await started.start("ingest", "--port", "0"), await started.start("flusher")
        check = await begun(ingest.url, "--seconds", "12", "--clients", "4")
        for _ in range(2):
            await counting(check, ingest.url)
            await flusher.end(signal.SIGKILL)
            await ingest.end(signal.SIGKILL)
            ingest = await started.start("ingest", "--port", str(ingest.port))
            flusher = await started.start("flusher")
        code, said, error = await ended(check)
        assert (code, said.get("series")) == (0, "exact"), f"{said} {error}"
        assert said["accepted"] <= said["counted"] <= said["accepted"] + said["unknown"]

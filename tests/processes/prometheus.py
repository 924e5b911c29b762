"""A real Prometheus, which scrapes processes and evaluates our rules."""

import contextlib
import re
from asyncio import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp

from deploy.processes import free_port
from tests.meta.checkout import ROOT
from tests.needs import program
from tests.world.scraping import until

RULES: Final = (ROOT / "deploy" / "prometheus" / "rules.yml").read_text()
_SECONDS: Final = {"m": 60, "h": 3_600}


def faster(rules: str, times: int) -> str:
    """The rules with all their times divided, also those that are thresholds."""

    def shorter(found: re.Match[str]) -> str:
        return f"{found[1]}{int(found[2]) * _SECONDS[found[3]] * 1_000 // times}ms"

    rules = re.sub(r"(\[|for: )(\d+)([mh])", shorter, rules)
    return re.sub(r"(seconds > )(\d+)", lambda found: f"{found[1]}{int(found[2]) / times}", rules)


class Prometheus:
    """A real one."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """Now, or at an instant, in seconds since 1970."""
        params = {"query": expression} | ({} if at is None else {"time": f"{at:.3f}"})
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self._url}/api/v1/query", params=params) as response,
        ):
            found = await response.json()
            assert found["status"] == "success", found
            return list(found["data"]["result"])

    async def firing(self) -> set[str]:
        return {one["metric"]["alertname"] for one in await self.query('ALERTS{alertstate="firing"}')}

    async def number(self, expression: str, at: float | None = None) -> float | None:
        """The value, if there is one."""
        found = await self.query(expression, at)
        return float(found[0]["value"][1]) if found else None


@contextlib.asynccontextmanager
async def prometheus(
    folder: Path, *targets: str, rules: str = RULES, every: float = 0.2, up: int | None = None, scrapes: str = ""
) -> AsyncIterator[Prometheus]:
    """It scrapes `every` so many seconds. At first, `up` of the targets are there, or all. `scrapes`: another list of
    what is scraped, in YAML.
    """
    targets_in = f"[{{job_name: countersink, static_configs: [{{targets: {[*targets]!r}}}]}}]"
    port = free_port()
    (folder / "rules.yml").write_text(rules)
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: {every * 1_000:.0f}ms, scrape_timeout: {every * 1_000:.0f}ms,"
        " evaluation_interval: 500ms}\n"
        f"rule_files: [rules.yml]\nscrape_configs: {scrapes or targets_in}\n"
    )
    process = await subprocess.create_subprocess_exec(
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    )
    it = Prometheus(f"http://127.0.0.1:{port}")

    async def ready() -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            return await it.number("sum(up)") == (len(targets) if up is None else up)
        return False

    try:
        await until(ready)
        yield it
    finally:
        process.kill()
        await process.wait()

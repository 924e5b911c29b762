"""A real Prometheus reads the totals of counters, with the job of docs/grafana.md; each query of that page and of the
dashboard of counters means something to it.
"""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.http.service import running
from tests.meta.checkout import ROOT
from tests.processes.prometheus import prometheus
from tests.world.scraping import until

pytestmark = pytest.mark.check
PAGE: Final = (ROOT / "docs" / "grafana.md").read_text()
QUERIES: Final = re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE)
DASHBOARD: Final[dict[str, Any]] = json.loads((ROOT / "deploy" / "grafana" / "counters.json").read_text())


async def test_prometheus_reads_what_was_counted(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    (job,) = yaml.safe_load(found[1])["scrape_configs"]
    job["scrape_interval"] = job["scrape_timeout"] = "200ms"
    async with running(tmp_path) as service:
        for name, delta in (("page:home", 12), ("page:about", 5), ("other", 7)):
            await service.incr(name, b'{"delta": %d}' % delta)
        job["static_configs"][0]["targets"] = [service.url.removeprefix("http://")]
        async with prometheus(tmp_path, "it", scrapes=json.dumps([job])) as server:

            async def all_of_it() -> bool:
                totals = await server.query("countersink_counter_value")
                return {one["metric"]["name"]: one["value"][1] for one in totals} == {
                    "page:home": "12",
                    "page:about": "5",
                }

            await until(all_of_it)
            await service.incr("page:home")
            await until(lambda: _is(server, 'countersink_counter_value{name="page:home"}', 13))
            assert await server.number("countersink_counter_values_exact") == 1
            assert len(QUERIES) == 3
            panels = [panel["targets"][0]["expr"] for panel in DASHBOARD["panels"]]
            for query in QUERIES + panels:
                known = query.replace("$__rate_interval", "1m").replace("$name", ".*")
                await until(partial(_is_there, server, known))


async def _is(server: Any, query: str, value: float) -> bool:
    return bool(await server.number(query) == value)


async def _is_there(server: Any, query: str) -> bool:
    return await server.number(query) is not None

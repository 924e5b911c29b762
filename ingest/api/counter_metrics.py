"""The values of counters as metrics, for Prometheus. They are not in `/metrics`, which is about the service itself."""

from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST

from ingest.api.counters import MOST_LISTED, check_prefix
from ingest.api.fields import Age, Prefix
from ingest.http.problems import Problem
from ingest.http.requests import Call, Reply
from shared.counters.reader import AllNames, Reader
from shared.http.answers import SECURE
from shared.http.shares import FairLock
from shared.ports.overlay import Overlay
from shared.ports.store import CounterNames

MOST: Final = 10_000
"""Counters in one answer."""
_HEAD: Final = (
    "# HELP countersink_counter_value The total of a counter. A set, reset or delete may lower it.\n"
    "# TYPE countersink_counter_value gauge\n"
)
_EXACT: Final = (
    "# HELP countersink_counter_values_exact 1 if all totals are exact.\n"
    "# TYPE countersink_counter_values_exact gauge\n"
    "countersink_counter_values_exact {:d}\n"
)
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"'})
"""No name has a line break, the third character that the format escapes."""
_LINE: Final = 'countersink_counter_value{{name="{}"}} {}\n'


class MetricsAsks(Age):
    prefix: Prefix = ""
    """Only counters whose names start with it."""


class CounterMetricsRoute:
    def __init__(self, reader: Reader, store: CounterNames, overlay: Overlay, turns: FairLock) -> None:
        """Tenants take `turns` to read."""
        self._reader = reader
        self._names = AllNames(store, overlay)
        self._turns = turns

    async def counter_metrics(self, call: Call, asks: MetricsAsks) -> Reply:
        """The totals of at most 10,000 counters, for Prometheus"""
        check_prefix(asks.prefix)
        caller = call.caller
        async with caller.turn(self._turns):
            names, exact = await self._listed(caller.prefixes_under(asks.prefix))
            lines = [_HEAD]
            for place in range(0, len(names), MOST_LISTED):
                for one in await self._reader.read(names[place : place + MOST_LISTED], asks.max_age):
                    exact = exact and one.exact
                    if one.exists:
                        lines.append(_LINE.format(one.name.translate(_ESCAPES), one.value))
        body = "".join([*lines, _EXACT.format(exact)]).encode()
        return Reply(body, 200, {"Content-Type": CONTENT_TYPE_LATEST, **SECURE})

    async def _listed(self, prefixes: list[str]) -> tuple[list[str], bool]:
        found: list[str] = []
        all_exact = True
        for prefix in prefixes:
            more, exact = await self._names.listed(prefix, "", MOST + 1 - len(found))
            found += more
            all_exact = all_exact and exact
            if len(found) > MOST:
                raise Problem(422, f"there are more than {MOST:,} counters: add a longer 'prefix'", field="prefix")
        return found, all_exact

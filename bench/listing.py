"""Row of a list of all counters of a SQLite file over HTTP, against a bare loop over its rows."""

import http.client
import sqlite3
import time
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Final

import orjson

from bench import machine, servers
from bench.figures import Figure, Plan, Row

BATCH: Final = 10_000
PAGE: Final = 1_000
TOP: Final = 100
TARGET: Final = 100_000
_SHARDS: Final = """
    SELECT counter, count FROM shards JOIN (SELECT counter FROM configs WHERE counter > ? ORDER BY counter LIMIT ?)
    USING (counter) ORDER BY counter
"""


def of_all(plan: Plan) -> Row:
    number = plan.many
    row = Row("list", f"a list of {number:,} counters, in pages of {PAGE:,}", "counters/s", target=TARGET)
    folder = plan.folder / row.name
    with servers.up(folder) as server, closing(http.client.HTTPConnection(server.host, server.port)) as client:
        for begin in range(0, number, BATCH):
            names = {f"page:{item:07}": 1 for item in range(begin, begin + BATCH)}
            client.request("POST", "/v1/increments?wait=applied&timeout=60", orjson.dumps({"counters": names}))
            if (answer := client.getresponse()).status != 200:
                raise RuntimeError(f"a batch was answered {answer.status}: {answer.read()!r}")
            answer.read()
        used, begun = machine.cpu(server.pid), time.monotonic()
        listed = _listed(client)
        seconds, used = time.monotonic() - begun, machine.cpu(server.pid) - used
        largest = _largest(client)
    if listed != number:
        raise RuntimeError(f"{listed} of {number} counters were listed")
    bare = number / _bare(folder / "countersink.db")
    row.ours, row.reference = Figure.of([number / seconds]), Figure.of([bare])
    row.ratio = Figure.of([number / seconds / bare])
    row.more |= {"counters": number, "page": PAGE, "cpu_us": used / number * 1e6, "largest_seconds": largest}
    row.notes.append(f"the {TOP} largest of them in {largest:.2f} s")
    row.notes.append(f"{used / number * 1e6:.1f} µs of the server's processor time for each counter")
    row.met = number / seconds >= TARGET
    return row


def _listed(client: http.client.HTTPConnection) -> int:
    listed, token = 0, ""
    while True:
        client.request("GET", f"/v1/counters?limit={PAGE}&max_age=0&page_token={token}")
        page = orjson.loads(client.getresponse().read())
        listed += len(page["counters"])
        token = page["next_page_token"] or ""
        if not token:
            return listed


def _largest(client: http.client.HTTPConnection) -> float:
    """Seconds to read the largest counters."""
    begun = time.monotonic()
    client.request("GET", f"/v1/counters?limit={TOP}&order=value")
    found = orjson.loads(client.getresponse().read())["counters"]
    if len(found) != TOP:
        raise RuntimeError(f"{len(found)} of the {TOP} largest counters were found")
    return time.monotonic() - begun


def _bare(path: Path) -> float:
    """Seconds to sum the shards of all counters, and to write each page as JSON."""
    with machine.on(machine.SERVER), closing(sqlite3.connect(path)) as db:
        begun, last = time.monotonic(), ""
        while rows := db.execute(_SHARDS, (last, PAGE)).fetchall():
            counters = [
                {"name": name, "value": sum(count for _, count in shards)}
                for name, shards in groupby(rows, lambda row: row[0])
            ]
            orjson.dumps(counters)
            last = rows[-1][0]
        return time.monotonic() - begun

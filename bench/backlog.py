"""Rows of a backlog in a SQLite file that a flusher works off, against a bare loop over the same messages."""

import contextlib
import http.client
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import orjson

from bench import machine, servers
from bench.figures import Figure, Plan, Row

BATCH: Final = 1_000
AT_ONCE: Final = 9
"""Messages in a commit of the bare loop: as many entries as a flusher has in one."""
LONGEST: Final = 300.0
_LOOK: Final = 0.02
_BARE: Final = """
    PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
    CREATE TABLE messages (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
    CREATE TABLE sums (counter TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE receipts (key TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_ADD: Final = "INSERT INTO sums VALUES (?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count"


def _names(number: int) -> bytes:
    """A batch of counters that are in no other."""
    return orjson.dumps({"counters": {f"page:{number}:{item:03}": 1 for item in range(BATCH)}})


def _same(_: int) -> bytes:
    return orjson.dumps({"counters": {f"page:{item:03}": 1 for item in range(BATCH)}})


def _ids(number: int) -> bytes:
    return orjson.dumps([{"counter": f"page:{item:03}", "delta": 1, "id": f"{number}:{item}"} for item in range(BATCH)])


def _row(plan: Plan, name: str, what: str, body: Callable[[int], bytes], *, target: float, times: int = 1) -> Row:
    number = times * plan.many // BATCH
    row = Row(f"backlog-{name}", f"a backlog of {number * BATCH:,} {what}", "applied/s", target=target)
    folder = plan.folder / row.name
    settings = {
        "COUNTERSINK_BROKER": f"sqlite:///{folder}/countersink.db",
        "COUNTERSINK_MAX_PENDING_BYTES": str(2**40),
    }
    with servers.running((*servers.COUNTERSINK, "ingest", "--port", "0"), **settings) as server:
        with closing(http.client.HTTPConnection(server.host, server.port)) as client:
            for one in range(number):
                client.request("POST", "/v1/increments", body(one))
                if (answer := client.getresponse()).status != 202:
                    raise RuntimeError(f"a batch was answered {answer.status}: {answer.read()!r}")
                answer.read()
        seen = _worked_off(folder / "countersink.db", settings)
        if (total := server.settled()) != number * BATCH:
            raise RuntimeError(f"{number * BATCH} were answered 2xx, {total} were counted")
    ours = _rate(seen)
    bare = _bare(folder / "bare.db", [body(one) for one in range(number)]) * BATCH
    row.ours, row.reference, row.ratio = Figure.of([ours]), Figure.of([bare]), Figure.of([ours / bare])
    half = next(place for place, (_, pending) in enumerate(seen) if pending <= number * BATCH / 2)
    first, second = _rate(seen[: half + 1]), _rate(seen[half:])
    row.more |= {"increments": number * BATCH, "first_half": first, "second_half": second}
    row.notes.append(f"{first:,.0f}/s in its first half, {second:,.0f}/s in its second")
    row.met = ours / bare >= target
    return row


def _worked_off(path: Path, settings: dict[str, str]) -> list[tuple[float, int]]:
    """When how many increments were pending, from the time at which a flusher took its first message."""
    seen: list[tuple[float, int]] = []
    with closing(sqlite3.connect(path)) as db, servers.process((*servers.COUNTERSINK, "flusher"), settings):
        until = time.monotonic() + LONGEST
        while not seen or seen[-1][1]:
            pending, begun = db.execute("SELECT increments, head > 0 FROM broker").fetchone()
            if begun and (not seen or pending != seen[-1][1]):
                seen.append((time.monotonic(), pending))
            if time.monotonic() > until:
                raise RuntimeError(f"{pending} increments are pending after {LONGEST:g} s")
            time.sleep(_LOOK)
    return seen


def _rate(seen: list[tuple[float, int]]) -> float:
    """Increments a second between the first and the last look."""
    (begun, before), (ended, after) = seen[0], seen[-1]
    return (before - after) / (ended - begun) if ended > begun else 0.0


def _bare(path: Path, bodies: list[bytes]) -> float:
    """Messages a second."""
    with machine.on(machine.SERVER), closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(_BARE)
        with _transaction(db):
            db.executemany("INSERT INTO messages VALUES (?, ?)", enumerate(bodies))
        begun = time.monotonic()
        while rows := db.execute("SELECT seq, data FROM messages ORDER BY seq LIMIT ?", (AT_ONCE,)).fetchall():
            sums: dict[str, int] = {}
            receipts: list[tuple[str]] = []
            for seq, data in rows:
                found = orjson.loads(data)
                receipts.append((f"e:{seq}",))
                if isinstance(found, list):
                    receipts += [(f"i:{item['counter']}:{item['id']}",) for item in found]
                    added = [(item["counter"], item["delta"]) for item in found]
                else:
                    added = [*found["counters"].items()]
                for name, delta in added:
                    sums[name] = sums.get(name, 0) + delta
            with _transaction(db):
                db.executemany("INSERT INTO receipts VALUES (?)", receipts)
                db.executemany(_ADD, sums.items())
                db.execute("DELETE FROM messages WHERE seq <= ?", (rows[-1][0],))
        return len(bodies) / (time.monotonic() - begun)


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    yield
    db.execute("COMMIT")


ROWS: Final[dict[str, Callable[[Plan], Row]]] = {
    "backlog-same": partial(_row, name="same", what="increments of 1,000 counters", body=_same, target=0.8, times=10),
    "backlog-names": partial(_row, name="names", what="increments, each of a new counter", body=_names, target=0.5),
    "backlog-ids": partial(_row, name="ids", what="increments with ids, of 1,000 counters", body=_ids, target=0.55),
}

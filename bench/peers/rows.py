"""Rows of other ways to count: in each round, each of them and Countersink count for some seconds, in turn."""

import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from bench import load, servers
from bench.emulators import MissingError
from bench.figures import Figure, Plan, Row
from bench.load import Load
from bench.peers import asgi, postgres, statsd, webdis
from bench.peers.peer import Counting, Peer
from bench.servers import Server
from bench.shapes import BATCH, COUNTER, Shape, counter_path

ROUNDS: Final = 3
ON_ONE: Final = (*webdis.PEERS, postgres.ON_ONE, *asgi.PEERS)
ON_MANY: Final = (postgres.ON_MANY,)
"""One counter is as good as many to Redis. PostgreSQL lets nobody else change a row until it is safe on disk."""
IN_BATCHES: Final = (postgres.IN_BATCHES,)
BATCHES: Final = "/v1/increments"
WHAT: Final = {"peers": "one counter", "peers-names": "1,000 counters", "peers-batches": "batches of 1,000"}
"""Of each group of rows."""


class _Way:
    """A way to count that runs, and what it has done."""

    def __init__(self, what: str, counting: Counting) -> None:
        self.loads: list[Load] = []
        self._what = what
        self._counting = counting
        self._begun = counting.total()

    def measure(self, seconds: float, connections: int) -> None:
        """One load, all of which must be counted. It is compared with what all loads counted, because webdis may give
        a client the answer to a request that another one, which has gone, sent in the load before.
        """
        self.loads.append(self._counting.load(seconds, connections))
        each, refused = self._counting.each, sum(one.refused for one in self.loads)
        answered = sum(one.good for one in self.loads) * each
        counted = self._counting.total() - self._begun
        if refused or not answered <= counted <= answered + 2 * connections * len(self.loads) * each:
            raise RuntimeError(
                f"{self._what}: {answered} were answered, {refused} were refused, {counted} were counted"
            )

    @property
    def rates(self) -> list[float]:
        """Increments a second of each load."""
        return [one.rate * self._counting.each for one in self.loads]


def _ours(server: Server, shape: Shape) -> Counting:
    each = BATCH if shape.path == BATCHES else 1
    return Counting(lambda seconds, connections: load.run(server, shape, seconds, connections), server.at_rest, each)


def _rows(plan: Plan, group: str, connections: int, peers: Sequence[Peer], shape: Shape) -> list[Row]:
    what = f"{WHAT[group]}, {connections} connections"
    group = f"{group}-{connections}"
    rows = {peer: Row(f"{group}-{peer.name}", f"{what}: {peer.what}", "increments/s") for peer in peers}
    with ExitStack() as stack:
        ours = _Way("Countersink", _ours(stack.enter_context(servers.up(plan.folder / "ours")), shape))
        ways: dict[Peer, _Way] = {}
        for peer, row in rows.items():
            folder = tempfile.TemporaryDirectory(prefix="countersink-bench-peer-", dir=plan.data)
            try:
                ways[peer] = _Way(peer.what, stack.enter_context(peer.start(Path(stack.enter_context(folder)))))
            except MissingError as missing:
                row.notes.append(f"skipped: {missing}")
            except (RuntimeError, subprocess.SubprocessError) as error:
                row.notes.append(f"failed: {error}")
        for _ in range(min(ROUNDS, plan.rounds)):
            ours.measure(plan.seconds, connections)
            for peer in [*ways]:
                try:
                    ways[peer].measure(plan.seconds, connections)
                except RuntimeError as error:  # the others are still measured
                    rows[peer].notes.append(f"failed: {error}")
                    del ways[peer]
    for peer, way in ways.items():
        _fill(rows[peer], peer, connections, ours, way)
    return [*rows.values()]


def _fill(row: Row, peer: Peer, connections: int, ours: _Way, theirs: _Way) -> None:
    row.ours, row.reference = Figure.of(ours.rates), Figure.of(theirs.rates)
    row.ratio = Figure.of([one / other for one, other in zip(ours.rates, theirs.rates, strict=True)])
    row.more |= {
        "peer": peer.name,
        "peer_is": peer.what,
        "safe": peer.safe,
        "connections": connections,
        **{f"p{share}_ms": _median(ours.loads, f"p{share}") for share in (50, 99)},
        **{f"reference_p{share}_ms": _median(theirs.loads, f"p{share}") for share in (50, 99)},
    }
    more = row.more
    row.notes.append(
        f"{connections} connections, latency p50 {more['p50_ms']:.1f} ms, p99 {more['p99_ms']:.1f} ms; the other's p50"
        f" {more['reference_p50_ms']:.1f} ms, p99 {more['reference_p99_ms']:.1f} ms; it keeps {peer.safe}"
    )


def _median(loads: Sequence[Load], name: str) -> float:
    return float(statistics.median(getattr(one, name) for one in loads))


def _one(plan: Plan, connections: int) -> list[Row]:
    shape = Shape(counter_path(), body=plan.bodies["one"])
    return _rows(plan, "peers", connections, ON_ONE, shape)


def _many(plan: Plan, connections: int) -> list[Row]:
    shape = Shape(counter_path(f"{COUNTER}:"), mode="names", body=plan.bodies["one"])
    return _rows(plan, "peers-names", connections, ON_MANY, shape)


def _batches(plan: Plan, connections: int) -> list[Row]:
    shape = Shape(BATCHES, body=plan.bodies["map1000"])
    return _rows(plan, "peers-batches", connections, IN_BATCHES, shape)


ROWS: Final[dict[str, Callable[[Plan], Row | list[Row]]]] = {
    "peers-64": partial(_one, connections=64),
    "peers-256": partial(_one, connections=256),
    "peers-names-64": partial(_many, connections=64),
    "peers-names-256": partial(_many, connections=256),
    "peers-batches-64": partial(_batches, connections=64),
    "peers-statsd": statsd.row,
}

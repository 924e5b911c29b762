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
from bench.figures import Figure, Row
from bench.load import Load
from bench.peers import postgres, statsd, webdis
from bench.peers.peer import Counting, Peer
from bench.plan import Plan
from bench.servers import Server
from bench.shapes import COUNTER, Shape, counter_path

ROUNDS: Final = 3
ON_ONE: Final = (*webdis.PEERS, postgres.ON_ONE)
ON_MANY: Final = (postgres.ON_MANY,)
"""One counter is as good as many to Redis. PostgreSQL lets nobody else change a row until it is safe on disk."""


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
        answered, refused = sum(one.good for one in self.loads), sum(one.refused for one in self.loads)
        counted = self._counting.total() - self._begun
        if refused or not answered <= counted <= answered + 2 * connections * len(self.loads):
            raise RuntimeError(
                f"{self._what}: {answered} were answered, {refused} were refused, {counted} were counted"
            )


def _ours(server: Server, shape: Shape) -> Counting:
    return Counting(lambda seconds, connections: load.run(server, shape, seconds, connections), server.at_rest)


def _rows(plan: Plan, group: str, connections: int, peers: Sequence[Peer], shape: Shape) -> list[Row]:
    what = f"{'one counter' if shape.mode == 'fixed' else '1,000 counters'}, {connections} connections"
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
        _fill(rows[peer], peer, connections, ours.loads, way.loads)
    return [*rows.values()]


def _fill(row: Row, peer: Peer, connections: int, ours: Sequence[Load], theirs: Sequence[Load]) -> None:
    row.ours, row.reference = Figure.of([one.rate for one in ours]), Figure.of([one.rate for one in theirs])
    row.ratio = Figure.of([one.rate / other.rate for one, other in zip(ours, theirs, strict=True)])
    row.more |= {
        "peer": peer.name,
        "peer_is": peer.what,
        "safe": peer.safe,
        "connections": connections,
        **{f"p{share}_ms": _median(ours, f"p{share}") for share in (50, 99)},
        **{f"reference_p{share}_ms": _median(theirs, f"p{share}") for share in (50, 99)},
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
    return _rows(plan, f"peers-{connections}", connections, ON_ONE, shape)


def _many(plan: Plan, connections: int) -> list[Row]:
    shape = Shape(counter_path(f"{COUNTER}:"), mode="names", body=plan.bodies["one"])
    return _rows(plan, f"peers-names-{connections}", connections, ON_MANY, shape)


ROWS: Final[dict[str, Callable[[Plan], Row | list[Row]]]] = {
    "peers-64": partial(_one, connections=64),
    "peers-256": partial(_one, connections=256),
    "peers-names-64": partial(_many, connections=64),
    "peers-names-256": partial(_many, connections=256),
    "peers-statsd": statsd.row,
}

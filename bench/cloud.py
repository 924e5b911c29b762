"""Rows of Countersink on Pub/Sub and Datastore, end to end, against the original algorithm on the same emulator."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench import load
from bench.deployment import Deployment, deployed
from bench.emulators import FIRESTORE
from bench.figures import Figure, Plan, Row, compare
from bench.load import Load
from bench.shapes import BATCH, COUNTER, NAMES, Shape, counter_path

STORE: Final = FIRESTORE
SINGLES: Final = 50.0
BATCHES: Final = 2_000.0
INGESTS: Final = min(2, os.cpu_count() or 1)
TRIAL: Final = 2.0
STRETCH: Final = 2.5
"""Loads are so many times longer here: what is applied only after their end counts, too."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is sent."""

    what: str
    counters: int
    path: str
    body: str
    mode: str = "fixed"
    weight: int = 1
    """Increments of each request."""
    connections: tuple[int, ...] = (256, 512)
    """The faster one of these, found out as the best way of the reference is."""

    def shape(self, plan: Plan) -> Shape:
        return Shape(self.path, mode=self.mode, body=plan.bodies[self.body])


WORKS: Final = {
    "post": Work("POSTs, one hot counter", 1, counter_path(), "one"),
    "post-names": Work("POSTs, 1,000 counters", NAMES, counter_path(f"{COUNTER}:"), "one", "names"),
    "array1": Work("arrays of 1,000, one counter", 1, "/v1/increments", "array1", weight=BATCH, connections=(32, 64)),
    "map1000": Work("maps of 1,000 counters", NAMES, "/v1/increments", "map1000", weight=BATCH, connections=(32, 64)),
}


def _row(plan: Plan, name: str) -> Row:
    work = WORKS[name]
    target = SINGLES if work.weight == 1 else BATCHES
    row = Row(f"cloud-{STORE}-{name}", f"Firestore emulator: {work.what}", "applied/s")
    row.target = target if work.counters == 1 else None
    number, shape = work.counters, work.shape(plan)
    trials = plan.rivals.trials(STORE, number)
    rivals = []
    with deployed(plan.emulators, STORE, INGESTS) as deployment:
        _measure(deployment, work, shape, 1.0, work.connections[0])
        tried = {some: _measure(deployment, work, shape, TRIAL, some)[1] for some in work.connections}
        connections = max(tried, key=lambda some: tried[some])
        loads: list[Load] = []

        def ours() -> float:
            seen, rate = _measure(deployment, work, shape, plan.seconds * STRETCH, connections)
            loads.append(seen)
            return rate

        def theirs() -> float:
            rivals.append(plan.rivals.measure(STORE, number, plan.seconds))
            return rivals[-1].rate

        row.ours, row.reference, row.ratio = compare(plan.cloud_rounds, ours, theirs)
        counted, _ = deployment.applied()
    p50, p99 = Figure.of([one.p50 for one in loads]), Figure.of([one.p99 for one in loads])
    refused = sum(one.refused for one in loads)
    row.more |= {
        "p50_ms": p50, "p99_ms": p99, "connections": connections, "refused": refused, "counted": counted,
        "reference_ways": [str(one.way) for one in rivals],
        "reference_p50_ms": Figure.of([one.p50 for one in rivals]),
        "reference_trials": {str(one.way): round(one.rate, 1) for one in trials},
    }  # fmt: skip
    row.notes.append(
        f"{connections} connections, latency p50 {p50.show(1)} ms, p99 {p99.show(1)} ms; {counted:,} counted ="
        " accepted, to the last one in each round" + (f"; {refused:,} refused (503)" if refused else "")
    )
    row.notes.append(f"reference: {rivals[-1].way}, the best of {len(trials)} ways; its totals were checked, too")
    if row.target is not None:
        row.met = row.ratio.median >= row.target and (work.weight > 1 or not refused)
    return row


def _measure(deployment: Deployment, work: Work, shape: Shape, seconds: float, connections: int) -> tuple[Load, float]:
    """Applied increments per second: from the first request until the store's total has the last of them."""
    before, begun = deployment.entities.total(), time.monotonic()
    seen = load.run_all(deployment.ingests, shape, seconds, connections)
    after, ended = deployment.applied()
    more = after - before
    if not seen.good * work.weight <= more <= (seen.good + 2 * connections) * work.weight:
        raise RuntimeError(f"{seen.good * work.weight} were answered 2xx, {more} were counted")
    return seen, more / (ended - begun)


ROWS: Final[dict[str, Callable[[Plan], Row]]] = {f"cloud-{STORE}-{name}": partial(_row, name=name) for name in WORKS}

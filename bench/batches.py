"""Rows of batches of 1,000 increments against a bare loop that parses and sums."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from bench import load, machine, servers
from bench.figures import Figure, Plan, Row, compare
from bench.load import Load
from bench.shapes import BATCH, Shape

TARGET = 0.4
CONNECTIONS = 32

Serve = Callable[[Path], AbstractContextManager[servers.Server]]


def array100(plan: Plan) -> Row:
    return _batches(plan, "array100", "batches of 1,000: array, 100 names", servers.apart)


def array1000(plan: Plan) -> Row:
    return _batches(plan, "array1000", "batches of 1,000: array, 1,000 names", servers.apart)


def map1000(plan: Plan) -> Row:
    return _batches(plan, "map1000", 'batches of 1,000: {"counters": {…}}', servers.apart)


def array100_up(plan: Plan) -> Row:
    return _batches(plan, "array100", "- array, 100 names, all on one processor", servers.up, target=None)


def _batches(plan: Plan, name: str, what: str, serve: Serve, target: float | None = TARGET) -> Row:
    """One process of ingest with a flusher beside it, which shares its processor with the load; or both in one."""
    row = Row(f"{name}-{serve.__name__}", what, "M events/s", target=target)
    body = plan.bodies[name]
    shape = Shape("/v1/increments", body=body)
    with serve(plan.folder / row.name) as server:
        loads: list[Load] = []
        bare: list[float] = []
        drained = load.run_plain(server, shape, 0.5, CONNECTIONS)
        before = server.settled()
        if before != drained.good * BATCH:
            raise RuntimeError(f"{drained.good * BATCH} were answered 2xx, {before} were counted")

        def measure() -> float:
            nonlocal before
            loads.append(load.run(server, shape, plan.seconds, CONNECTIONS))
            after = server.at_rest()
            good = loads[-1].good
            if not good * BATCH <= after - before <= (good + 2 * CONNECTIONS) * BATCH:
                raise RuntimeError(f"{good * BATCH} were answered 2xx, {after - before} were counted")
            before = after
            return loads[-1].rate * BATCH / 1e6

        row.ours, row.reference, row.ratio = compare(plan.rounds, measure, _bare(plan, str(body), bare))
    p50, p99 = Figure.of([one.p50 for one in loads]), Figure.of([one.p99 for one in loads])
    refused = sum(one.refused for one in loads)
    row.more |= {
        "p50_ms": p50,
        "p99_ms": p99,
        "connections": CONNECTIONS,
        "refused": refused,
        "counted": before,
        "cpu_ratio": Figure.of([1 / one.cost * BATCH / other for one, other in zip(loads, bare, strict=True)]),
    }
    row.notes.append(
        f"{CONNECTIONS} connections, latency p50 {p50.show(1)} ms, p99 {p99.show(1)} ms; {before:,} counted ="
        f" accepted by the server" + (f"; {refused:,} batches were refused (503)" if refused else "")
    )
    row.met = None if target is None else row.ratio.median >= target
    return row


def _bare(plan: Plan, body: str, by_cpu: list[float]) -> Callable[[], float]:
    def measure() -> float:
        with machine.on(machine.SERVER):
            ended = subprocess.run(
                [sys.executable, "-m", "bench.bare", body, str(plan.seconds)],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
        rate, rate_of_cpu = map(float, ended.stdout.split())
        by_cpu.append(rate_of_cpu)
        return rate / 1e6

    return measure

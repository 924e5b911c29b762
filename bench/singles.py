"""Rows of single requests: POSTs and cached GETs against an empty handler."""

import json
from collections.abc import Callable

from bench import load, servers
from bench.figures import Figure, Plan, Row, compare
from bench.load import CONNECTIONS, Load
from bench.servers import Server
from bench.shapes import COUNTER, Shape, counter_path

POST_TARGET = 0.5
GET_TARGET = 0.9


def post(plan: Plan) -> Row:
    return _post_one(plan, Row("post", "POST of one increment, durable before its 202", target=POST_TARGET))


def post_without_fast_path(plan: Plan) -> Row:
    row = Row("post-without-fast-path", "POST of one increment without the fast path")
    return _post_one(plan, row, servers.WITHOUT_FAST_PATH)


def post_empty(plan: Plan) -> Row:
    return _posts(plan, Row("post-empty", "… with an empty body"), Shape(counter_path()), Shape("/"))


def post_ids(plan: Plan) -> Row:
    row = Row("post-ids", "… with a client's id in each body")
    return _posts(plan, row, Shape(counter_path(), mode="ids"), Shape("/", mode="ids"))


def post_names(plan: Plan) -> Row:
    row = Row("post-names", "… of 1,000 counters in turn")
    body = plan.bodies["one"]
    ours = Shape(counter_path(f"{COUNTER}:"), mode="names", body=body)
    return _posts(plan, row, ours, Shape("/", body=body))


def get(plan: Plan) -> Row:
    row = Row("get", "GET of a counter, cached", "requests/s", target=GET_TARGET)
    with servers.up(plan.folder / row.name) as server, servers.empty() as empty:
        load.run_plain(server, Shape(counter_path(), body=plan.bodies["one"]), 0.5)
        expected = server.settled()
        loads: list[Load] = []
        others: list[Load] = []
        ours = Shape(counter_path(), method="GET")

        def measure() -> float:
            loads.append(load.run(server, ours, plan.seconds))
            _, _, body = server.ask(counter_path())
            if json.loads(body)["value"] != expected:
                raise RuntimeError(f"the value is {body!r}, and must be {expected}")
            return loads[-1].rate

        reference = _rate(plan, empty, Shape("/", method="GET"), others)
        row.ours, row.reference, row.ratio = compare(plan.rounds, measure, reference)
    row.more["cpu_ratio"] = _cpu_ratio(loads, others)
    row.notes.append(f"{_latency(row, loads)}; the value was {expected} as it must be after each round")
    return _judge(row, loads)


def _post_one(plan: Plan, row: Row, countersink: tuple[str, ...] = servers.COUNTERSINK) -> Row:
    body = plan.bodies["one"]
    return _posts(plan, row, Shape(counter_path(), body=body), Shape("/", body=body), countersink)


def _posts(
    plan: Plan, row: Row, ours: Shape, reference: Shape, countersink: tuple[str, ...] = servers.COUNTERSINK
) -> Row:
    row.unit = "requests/s"
    with servers.up(plan.folder / row.name, countersink) as server, servers.empty() as empty:
        loads: list[Load] = []
        others: list[Load] = []
        drained = load.run_plain(server, ours, 0.5)
        if server.settled() != drained.good:
            raise RuntimeError(f"{drained.good} were answered 2xx, {server.settled()} were counted")
        before = drained.good

        def measure() -> float:
            nonlocal before
            loads.append(load.run(server, ours, plan.seconds))
            after = server.at_rest()
            _check(loads[-1], after - before)
            before = after
            return loads[-1].rate

        rounds = plan.rounds if row.target else min(3, plan.rounds)
        row.ours, row.reference, row.ratio = compare(rounds, measure, _rate(plan, empty, reference, others))
    good = sum(one.good for one in loads)
    row.more |= {"answered_2xx": drained.good + good, "counted": before}
    row.more["cpu_ratio"] = _cpu_ratio(loads, others)
    row.notes.append(_latency(row, loads))
    row.notes.append(
        f"counted {before:,} = accepted by the server; 2xx seen {drained.good + good:,}, of the rest the"
        f" generator did not wait for the answer; {drained.good:,} that it did wait for were counted exactly"
    )
    return _judge(row, loads)


def _check(seen: Load, more: int) -> None:
    """Fail if the total is not what was promised: no increment less, and no more than were sent."""
    if not seen.good <= more <= seen.good + 2 * CONNECTIONS:
        raise RuntimeError(f"{seen.good} were answered 2xx, {more} were counted")


def _rate(plan: Plan, server: Server, shape: Shape, loads: list[Load]) -> Callable[[], float]:
    def measure() -> float:
        loads.append(load.run(server, shape, plan.seconds))
        return loads[-1].rate

    return measure


def _cpu_ratio(loads: list[Load], others: list[Load]) -> Figure:
    """The reference's processor time for each request, divided by ours: as the ratio of rates, but no other program
    that takes turns on the processor is in it.
    """
    return Figure.of([other.cost / one.cost for one, other in zip(loads, others, strict=True)])


def _latency(row: Row, loads: list[Load]) -> str:
    p50, p99 = Figure.of([one.p50 for one in loads]), Figure.of([one.p99 for one in loads])
    row.more |= {"p50_ms": p50, "p99_ms": p99, "connections": CONNECTIONS}
    return f"{CONNECTIONS} connections, latency p50 {p50.show(2)} ms, p99 {p99.show(2)} ms"


def _judge(row: Row, loads: list[Load]) -> Row:
    refused = sum(one.refused for one in loads)
    if refused:
        row.notes.append(f"{refused:,} answers were not 2xx")
        row.more["refused"] = refused
    if row.target is not None and row.ratio is not None:
        row.met = row.ratio.median >= row.target and not refused
    return row

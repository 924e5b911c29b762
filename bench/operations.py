"""Rows of Datastore operations per million increments, at a steady rate: by the original, and with counts by time."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from bench import load
from bench.deployment import Deployment, Operations, deployed
from bench.emulators import FIRESTORE
from bench.figures import Figure, Plan, Row
from bench.shapes import BATCH, COUNTER, NAMES, Shape, counter_path

RATE: Final = 5_000
BUSY: Final = 1_000
"""Increments per second above which a short window has enough of them."""
WITH_IDS: Final = 1_000
NOTHING: Final[Mapping[str, str]] = {}
MOST: Final = 10_000
"""Operations per million increments of one hot counter."""
MOST_STEADY: Final = 60_000
"""The same of many counters that nobody reads."""
ORIGINAL: Final = 3_000_000
"""Of the original algorithm, without those of transactions that were not committed."""
WARM_UP: Final = 45.0
"""Seconds until windows have grown, and what is done some seconds after an increment, the settling, has its rate."""
LOOKED_AT: Final = 150.0
"""The same where counters are many and new: for two minutes flushers look at how their shards grow."""
LENGTH: Final = 20.0
"""Seconds of a measurement, at least: a window takes up to 10."""
STEADY: Final = 3_000
"""Increments per second of many counters."""
SWEPT: Final = 2_000
"""Receipts that one query of a sweep finds."""
GETS: Final = 20
_MILLION: Final = 1_000_000


def _operations(plan: Plan, number: int) -> Row:
    what = "one hot counter" if number == 1 else f"{number:,} counters"
    name = "cloud-operations" if number == 1 else "cloud-operations-names"
    row = Row(name, f"Datastore operations per million POSTs at {RATE:,}/s, {what}", "operations")
    windows, seen, counted, gets = _measured(plan, _shape(plan, number))
    row.ours = Figure.of([window.per_million for window in windows])
    theirs = [_theirs(plan, number) for _ in windows]
    row.reference = Figure.of(theirs)
    row.ratio = Figure.of([there / window.per_million for window, there in zip(windows, theirs, strict=True)])
    middle = sorted(windows, key=lambda window: window.per_million)[len(windows) // 2]
    row.more |= middle.document() | {
        "rate": Figure.of([window.rate for window in windows]), "target_most": MOST if number == 1 else None,
        "p50_ms": seen.p50, "p99_ms": seen.p99, "counted": counted, "reads_per_get": gets,
    }  # fmt: skip
    shown = middle.document()
    row.notes.append(
        f"{shown['reads']:,.0f} reads, {shown['writes']:,.0f} writes, {shown['deletes']:,.0f} deletes of receipts that"
        f" are to come; besides, a GET that no cache answers reads {gets:g}; the ratio is how many times fewer"
    )
    row.notes.append(
        f"{middle.rate:,.0f}/s applied, open loop, latency p50 {seen.p50:.1f} ms, p99 {seen.p99:.1f} ms;"
        f" {counted:,} counted = answered 2xx"
    )
    if number == 1:
        row.target = ORIGINAL / MOST
        row.met = row.ours.median <= MOST
    return row


def _shape(plan: Plan, number: int) -> Shape:
    if number == 1:
        return Shape(counter_path(), body=plan.bodies["one"])
    return Shape(counter_path(f"{COUNTER}:"), mode="names", body=plan.bodies["one"])


def _measured(
    plan: Plan,
    shape: Shape,
    rate: float = RATE,
    each: int = 1,
    settings: Mapping[str, str] = NOTHING,
    *,
    warm_up: float = WARM_UP,
) -> "tuple[list[_Window], load.Load, int, float]":
    """What was done in each round, what the generator saw, what was counted, and the reads of a GET. `each`: increments
    of a request.
    """
    length = max(plan.seconds * (5 if rate * each >= BUSY else 15), LENGTH)
    with deployed(plan.emulators, FIRESTORE, 1, **settings) as deployment:
        with load.paced(deployment.ingests[0], shape, rate, warm_up + length * plan.cloud_rounds + 1) as generator:
            time.sleep(warm_up)
            windows = [_window(deployment, length) for _ in range(plan.cloud_rounds)]
            seen = generator()
        counted, _ = deployment.applied()
        if counted != seen.good * each:
            raise RuntimeError(f"{seen.good * each} were answered 2xx, {counted} were counted")
        return windows, seen, counted, _gets(deployment)


def _by_time(plan: Plan, number: int) -> Row:
    """With the hours of each counter, and with hours and days, against totals alone."""
    what = "one hot counter" if number == 1 else f"{number:,} counters"
    name = "cloud-operations-by-time" if number == 1 else "cloud-operations-by-time-names"
    row = Row(name, f"the same with counts by the hour, {what}", "operations")
    without, hours, both = (
        [one.per_million for one in _measured(plan, _shape(plan, number), settings=settings)[0]]
        for settings in (
            {},
            {"COUNTERSINK_WINDOWS": "=hour/90d"},
            {"COUNTERSINK_WINDOWS": "=hour/90d,day/2y"},
        )
    )
    row.ours, row.reference = Figure.of(hours), Figure.of(without)
    row.ratio = Figure.of([one / other for one, other in zip(hours, without, strict=True)])
    row.more |= {"hours_and_days": Figure.of(both)}
    row.notes.append(
        f"with hours and days {row.more['hours_and_days'].median:,.0f}, without either {row.reference.median:,.0f}:"
        " one write more for each flush, counter and period; the ratio is with hours against without"
    )
    return row


def _at_rate(plan: Plan, rate: int) -> Row:
    """One counter that is counted now and then: the fewer increments share a message, the more each one costs."""
    row = Row(f"cloud-operations-{rate}", f"the same at {rate}/s, one counter", "operations", target=None)
    return _plain_row(row, _measured(plan, _shape(plan, 1), rate)[0])


def _ids(plan: Plan) -> Row:
    """An id of each increment is a receipt of its own."""
    row = Row("cloud-operations-ids", f"the same at {WITH_IDS:,}/s, an id for each increment", "operations")
    return _plain_row(row, _measured(plan, Shape(counter_path(), mode="ids"), WITH_IDS)[0])


def _key(plan: Plan) -> Row:
    """One key for a batch is one receipt for all of it."""
    row = Row("cloud-operations-key", f"the same at {WITH_IDS:,}/s, one key for each batch of {BATCH:,}", "operations")
    shape = Shape("/v1/increments", mode="keys", body=plan.bodies["array1"])
    return _plain_row(row, _measured(plan, shape, WITH_IDS / BATCH, BATCH)[0])


def _steady(plan: Plan) -> Row:
    """Windows that grow while nobody waits, against windows of a second."""
    row = Row("cloud-operations-steady", f"the same at {STEADY:,}/s, {NAMES:,} counters", "operations")
    windows, _, _, _ = _measured(plan, _shape(plan, NAMES), STEADY, warm_up=LOOKED_AT)
    settings = {"COUNTERSINK_MAX_FLUSH_INTERVAL": "0"}
    short, _, _, _ = _measured(plan, _shape(plan, NAMES), STEADY, settings=settings, warm_up=LOOKED_AT)
    _plain_row(row, windows)
    row.reference = Figure.of([window.per_million for window in short])
    row.ratio = Figure.of([one.per_million / other.per_million for one, other in zip(short, windows, strict=True)])
    row.met = sorted(window.per_million for window in windows)[len(windows) // 2] <= MOST_STEADY
    row.notes.append("the reference flushes each second, as while somebody reads")
    return row


def _plain_row(row: Row, windows: "list[_Window]") -> Row:
    row.ours = Figure.of([window.per_million for window in windows])
    row.reference = Figure.of([ORIGINAL for _ in windows])
    row.ratio = Figure.of([ORIGINAL / window.per_million for window in windows])
    middle = sorted(windows, key=lambda window: window.per_million)[len(windows) // 2]
    shown = middle.document()
    row.more |= shown | {"rate": Figure.of([window.rate for window in windows])}
    row.notes.append(
        f"{shown['reads']:,.0f} reads, {shown['writes']:,.0f} writes, {shown['deletes']:,.0f} deletes of receipts that"
        f" are to come; {middle.rate:,.1f}/s applied; the ratio is how many times fewer than one transaction for each"
    )
    return row


def _theirs(plan: Plan, number: int) -> float:
    result = plan.rivals.measure(FIRESTORE, number, plan.seconds)
    return (result.reads + result.writes) / result.committed * _MILLION


class _Window:
    """What was done in some seconds of the steady load, and the deletion of the receipts, which comes days later."""

    def __init__(self, operations: Operations, receipts: int, increments: int, seconds: float) -> None:
        self._each = operations + Operations(reads=-(-receipts // SWEPT), deletes=receipts)
        self._increments = increments
        self.rate = increments / seconds

    @property
    def per_million(self) -> float:
        return self._each.all / self._increments * _MILLION

    def document(self) -> dict[str, Any]:
        scale = _MILLION / self._increments
        return {name: getattr(self._each, name) * scale for name in ("reads", "writes", "deletes")}


def _window(deployment: Deployment, seconds: float) -> _Window:
    begun, before = time.monotonic(), _state(deployment)
    time.sleep(seconds)
    after = _state(deployment)
    operations, receipts, increments = (b - a for a, b in zip(before, after, strict=True))
    return _Window(operations, receipts, increments, time.monotonic() - begun)


def _state(deployment: Deployment) -> tuple[Any, ...]:
    return deployment.operations(), deployment.entities.receipts(), deployment.entities.total()


def _gets(deployment: Deployment) -> float:
    """Reads for one that is answered by no cache."""
    before = deployment.operations()
    for _ in range(GETS):
        deployment.ingests[0].ask(counter_path() + "?max_age=0")
    return (deployment.operations() - before).reads / GETS


ROWS: Final[dict[str, Callable[[Plan], Row]]] = {
    "cloud-operations": partial(_operations, number=1),
    "cloud-operations-names": partial(_operations, number=NAMES),
    "cloud-operations-steady": _steady,
    "cloud-operations-1": partial(_at_rate, rate=1),
    "cloud-operations-100": partial(_at_rate, rate=100),
    "cloud-operations-ids": _ids,
    "cloud-operations-key": _key,
    "cloud-operations-by-time": partial(_by_time, number=1),
    "cloud-operations-by-time-names": partial(_by_time, number=NAMES),
}

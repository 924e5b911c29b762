"""Metrics count as Prometheus' own client does, and go on in memory that outlives the process."""

import random
from collections.abc import Sequence

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from shared.runtime import instruments
from shared.runtime.instruments import BUCKETS, CELLS, Counter, Gauge, Histogram, MetricsBoard, SeriesKey
from tests.world.scraping import Scrape


class Process:
    """One that counts."""

    def __init__(self) -> None:
        self.board = MetricsBoard()
        self.count = Counter(self.board, "count", "What was counted.")
        self.why = Counter(self.board, "why", "What was counted, by reason.", ["reason"])
        self.level = Gauge(self.board, "level", "What is so now.")
        self.took = Histogram(self.board, "took", "How long it took.")

    def join(self, worker: int, memory: Sequence[int]) -> "Process":
        self.board.join(worker, memory)
        return self

    def shown(self) -> Scrape:
        registry = CollectorRegistry()
        registry.register(self.board)
        return Scrape(generate_latest(registry).decode())


def test_it_shows_what_the_usual_client_shows() -> None:
    ours, theirs = Process(), CollectorRegistry()
    count = prometheus_client.Counter("count", "What was counted.", registry=theirs)
    why = prometheus_client.Counter("why", "What was counted, by reason.", ["reason"], registry=theirs)
    level = prometheus_client.Gauge("level", "What is so now.", registry=theirs)
    took = prometheus_client.Histogram("took", "How long it took.", registry=theirs, buckets=BUCKETS)
    drawn = random.Random(1)
    for seconds in [0.0, *BUCKETS, 11.0, *(drawn.expovariate(3) for _ in range(1_000))]:
        ours.took.observe(seconds)
        took.observe(seconds)
    for one, other in ((ours.count, count), (ours.why.labels("a"), why.labels("a"))):
        one.inc()
        other.inc()
        one.inc(2.5)
        other.inc(2.5)
    ours.level.set(-3)
    level.set(-3)
    usual = Scrape(generate_latest(theirs).decode())
    assert ours.shown().values == {one: value for one, value in usual.values.items() if not one[0].endswith("_created")}


def test_each_worker_shows_all_and_what_it_counted_outlives_it() -> None:
    memory = [instruments.make_shared() for _ in range(2)]
    first, second = (Process().join(worker, memory) for worker in range(2))
    first.count.inc(5)
    first.why.labels("a").inc()
    first.level.set(7)
    second.count.inc(1)
    assert first.shown().values == second.shown().values
    assert dict(second.shown().values)["count_total", frozenset({("worker", "0")})] == 5
    assert second.shown().sum("level", worker="0") == 7
    instruments.shared(memory[0], writes=True).drop_gauges()  # as the parent does when it has ended
    assert [*second.shown().all("level", worker="0")] == []
    assert second.shown().sum("count_total", worker="0") == 5
    again = Process().join(0, memory)
    assert again.shown().sum("level", worker="0") == 0
    again.count.inc()
    again.why.labels("b").inc()
    assert second.shown().fell(first.shown()) == []
    assert second.shown().sum("count_total") == 7
    assert sorted(labels["reason"] for labels, _ in second.shown().all("why_total")) == ["a", "b"]


def test_what_was_counted_before_it_is_a_worker_is_kept() -> None:
    process = Process()
    process.count.inc(2)
    process.level.set(3)
    process.why.labels("a").inc(4)
    process.join(0, [instruments.make_shared()])
    process.why.labels("a").inc()
    shown = process.shown()
    assert [shown.sum(name, worker="0") for name in ("count_total", "level", "why_total")] == [2, 3, 5]


def test_a_worker_cannot_write_where_another_one_counts() -> None:
    memory = [instruments.make_shared() for _ in range(2)]
    process = Process().join(0, memory)
    other = instruments.shared(memory[1], writes=False)
    with pytest.raises(TypeError):
        other.cells[5] = 1
    assert process.shown().sum("count_total") == 0


def test_what_is_a_function_is_read_when_it_is_shown_and_a_counter_goes_on_after_a_restart() -> None:
    memory = [instruments.make_shared()]
    for before in (0, 6):
        process = Process().join(0, memory)
        process.level.set_function(lambda: 4)
        process.count.set_function(iter([5, 6, 6]).__next__)
        assert [process.shown().sum("count_total") for _ in range(3)] == [before + 5, before + 6, before + 6]
        assert process.level.get() == 4


def test_series_that_do_not_fit_are_an_error_and_harm_no_others() -> None:
    cells = instruments.private()
    cells.place(SeriesKey("counter", "large", (), CELLS - 10))
    with pytest.raises(MemoryError):
        cells.place(SeriesKey("counter", "too large", (), 11))
    assert [key.name for key in cells.series()] == ["large"]

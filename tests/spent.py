"""A pytest plugin that writes what became of the tests, and how much time those of each file took."""

import json
import os
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import pytest


def processor_time() -> float:
    """Seconds of this process, and of processes that it or one of them has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used) + _of_children()


def _of_children() -> float:
    """Seconds of children that still run, such as the fork server, and of what those have waited for."""
    ticks = 0
    with suppress(OSError):
        for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            stat = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(number) for number in stat[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def yardstick() -> float:
    """Processor time of a fixed piece of Python, by which runs on different machines are compared."""
    begun, text = time.process_time(), ""
    for _ in range(200_000):
        text = str(hash(text))
    return time.process_time() - begun


class Spent:
    """The sums of this process. In the one that prints the results, they become those of all workers."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.walls: dict[str, float] = defaultdict(float)
        self.cases: Counter[str] = Counter()
        self.yardsticks: list[float] = []
        self.outcomes: dict[str, list[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        begun, before = processor_time(), time.monotonic()
        result = yield
        file = item.nodeid.partition("::")[0]
        self.seconds[file] += max(0.0, processor_time() - begun)
        self.walls[file] += time.monotonic() - before
        self.cases[file] += 1
        if self.cases.total() % 100 == 1:
            self.yardsticks.append(yardstick())
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of pytest-xdist has ended."""
        seconds, walls, cases, yardsticks = getattr(node, "workeroutput", {}).get("spent", ({}, {}, {}, []))
        for file in cases:
            self.seconds[file] += seconds[file]
            self.walls[file] += walls[file]
        self.cases.update(cases)
        self.yardsticks += yardsticks

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            sums = (dict(self.seconds), dict(self.walls), dict(self.cases), self.yardsticks)
            session.config.workeroutput["spent"] = sums

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for outcome in ("passed", "failed", "error", "skipped", "rerun"):
            self.outcomes[outcome] = [one.nodeid for one in terminalreporter.stats.get(outcome, [])]

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        path = config.getoption("--spent")
        if path and not hasattr(config, "workerinput"):
            told = {
                "files": {
                    file: [self.cases[file], round(self.seconds[file], 2), round(self.walls[file], 2)]
                    for file in sorted(self.cases)
                },
                "yardstick": median(self.yardsticks or [yardstick()]),
                "outcomes": self.outcomes,
            }
            Path(path).write_text(json.dumps(told))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spent", metavar="FILE", help="write outcomes, and the processor time of each file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Spent())

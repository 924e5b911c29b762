"""Runs the original algorithm: finds out how it is fastest on an emulator, then measures it like that."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import uuid4

from bench.emulators import PROJECT, Emulators
from bench.entities import Entities
from bench.original import CLIENTS, counters

CONCURRENCIES: Final = (1, 2, 4, 8, 16, 32, 64)
"""Of each process. Where it is many counters that are counted, nobody meets, and the first ones only cost time."""
FEW: Final = 2
PROCESSES: Final = 2
TRIAL: Final = 1.0
WARM_UP: Final = 4.0
"""Seconds."""
POOR: Final = 0.8
"""Two trials in turn below this share of the best end a climb."""


@dataclass(frozen=True, slots=True)
class Way:
    """How the algorithm is run."""

    client: str
    processes: int
    concurrency: int

    def __str__(self) -> str:
        return f"{self.client}, {self.processes} x {self.concurrency} at once"


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run."""

    way: Way
    committed: int
    aborted: int
    seconds: float
    reads: int
    writes: int
    p50: float
    p99: float
    """Milliseconds."""

    @property
    def rate(self) -> float:
        return self.committed / self.seconds


class Rivals:
    """The processes of the original algorithm, kept for the whole run."""

    def __init__(self, emulators: Emulators) -> None:
        self._emulators = emulators
        self._processes: dict[tuple[str, str, int], subprocess.Popen[str]] = {}
        self._unheard: list[subprocess.Popen[str]] = []
        self._best: dict[tuple[str, int], list[Result]] = {}
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def measure(self, store: str, number: int, seconds: float) -> Result:
        """The better one of the two ways that were best."""
        ways = [result.way for result in self.trials(store, number)[:2]]
        return max((self._run(store, number, way, seconds) for way in ways), key=lambda result: result.rate)

    def trials(self, store: str, number: int) -> list[Result]:
        """Of every client at every concurrency that was worth it, the best first."""
        if (store, number) not in self._best:
            self._begin(store, CLIENTS)
            self._run(store, 1_000, Way("asyncio", 1, 16), WARM_UP)
            found = [result for client in CLIENTS for result in self._climb(store, number, client)]
            for result in sorted(found, key=_rate)[-2:]:
                few = {max(result.way.concurrency // PROCESSES, 1), result.way.concurrency}
                ways = [Way(result.way.client, PROCESSES, concurrency) for concurrency in sorted(few)]
                found += [self._run(store, number, way, TRIAL) for way in ways]
            self._best[store, number] = sorted(found, key=_rate, reverse=True)
        return self._best[store, number]

    def _climb(self, store: str, number: int, client: str) -> Iterator[Result]:
        best, poor = 0.0, 0
        for concurrency in CONCURRENCIES[0 if number == 1 else FEW :]:
            result = self._run(store, number, Way(client, 1, concurrency), TRIAL)
            yield result
            poor = poor + 1 if result.rate < best * POOR else 0
            best = max(best, result.rate)
            if poor == 2:
                return

    def _run(self, store: str, number: int, way: Way, seconds: float) -> Result:
        """In a namespace of its own, whose total is checked."""
        namespace = f"original-{uuid4().hex}"
        entities = Entities(self._emulators.host(store), namespace)
        try:
            entities.make_configs(counters(number))
            processes = [self._processes[store, way.client, index] for index in range(way.processes)]
            order = {
                "namespace": namespace, "number": number, "concurrency": way.concurrency, "seconds": seconds
            }  # fmt: skip
            for process in processes:
                _tell(process, order)
            seen = [_hear(process) for process in processes]
            result = Result(
                way,
                seconds=max(one["seconds"] for one in seen),
                **{name: sum(one[name] for one in seen) for name in ("committed", "aborted", "reads", "writes")},
                **{name: max(one[name] for one in seen) for name in ("p50", "p99")},
            )
            total = entities.total()
        finally:
            entities.close()
        if total != result.committed:
            raise RuntimeError(f"the original algorithm ({way}) committed {result.committed}, the total is {total}")
        return result

    def _begin(self, store: str, clients: Sequence[str]) -> None:
        """All processes at once: most of their start is waiting and importing."""
        new = [(store, client, index) for client in clients for index in range(PROCESSES)]
        for key in [key for key in new if key not in self._processes]:
            command = (sys.executable, "-m", "bench.original", key[1], self._emulators.host(store), PROJECT)
            self._processes[key] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._ends.callback(_end, self._processes[key])
            self._unheard.append(self._processes[key])
        while self._unheard:
            _hear(self._unheard.pop())


def _rate(result: Result) -> float:
    return result.rate


def _tell(process: "subprocess.Popen[str]", order: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()


def _hear(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("a process of the original algorithm failed; it said why above")
    return json.loads(line)


def _end(process: "subprocess.Popen[str]") -> None:
    process.communicate()  # ends its input, and so the process

"""The reference of the cloud rows: Google's general sharded counter, as published, by one of three clients.

For an increment: get the config, choose one of its shards at random, and in a transaction read that shard, add 1 and
write it; again from the start of the transaction when it was not committed. Arguments: CLIENT HOST PROJECT. Each line
of stdin is a run, `{"namespace", "number", "concurrency", "seconds"}`; each line of stdout its result.
"""

import importlib
import json
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Final

NUM_SHARDS: Final = 20
CONFIG: Final = "GeneralCounterShardConfig"
SHARD: Final = "GeneralCounterShard"
CLIENTS: Final = ("ndb", "threads", "asyncio")


def shard_name(counter: str, index: int) -> str:
    return f"shard-{counter}-{index:d}"


def counters(number: int) -> list[str]:
    return ["hot"] if number == 1 else [f"counter-{index:04}" for index in range(number)]


@dataclass(slots=True)
class Tally:
    """What was done until the last increment that began in time ended."""

    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    """Commits that were not answered: they may have happened."""
    reads: int = 0
    writes: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.committed += other.committed
        self.aborted += other.aborted
        self.unknown += other.unknown
        self.reads += other.reads
        self.writes += other.writes
        self.latencies += other.latencies

    def result(self) -> dict[str, Any]:
        times = sorted(self.latencies) or [0.0]
        document = asdict(self)
        del document["latencies"]
        return document | {"p50": times[len(times) // 2] * 1000, "p99": times[len(times) * 99 // 100] * 1000}


def in_threads(number: int, concurrency: int, seconds: float, increment: Callable[[str, Tally, float], None]) -> Tally:
    """Have so many threads increment counters, each with a tally of its own, until the time is over."""
    names = counters(number)
    until = time.perf_counter() + seconds

    def one(tally: Tally) -> None:
        while (begun := time.perf_counter()) < until:
            increment(random.choice(names), tally, until)
            tally.latencies.append(time.perf_counter() - begun)

    tallies = [Tally() for _ in range(concurrency)]
    with ThreadPoolExecutor(concurrency) as pool:
        for done in [pool.submit(one, tally) for tally in tallies]:
            done.result()
    total = Tally()
    for tally in tallies:
        total.add(tally)
    return total


def main(client: str, host: str, project: str) -> None:
    module = importlib.import_module(f"bench.original_{client}")
    run: Callable[..., Tally] = module.runner(host, project)
    print("{}", flush=True)
    for line in sys.stdin:
        begun = time.perf_counter()
        tally = run(**json.loads(line))
        tally.seconds = time.perf_counter() - begun
        print(json.dumps(tally.result()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

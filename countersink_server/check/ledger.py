"""What was sent to a service, what it answered, and which of its readings break a promise. Pure.

All deltas are positive, so three numbers of a counter bound every exact reading. While a read is under way,

- the service must have what it had **accepted** before the read began, and what an exact reading had **shown** before,
- and it can't have more than what was **sent** before the read ended, without what it surely refused.

An add without a clear answer is between the two: it may have counted. One under an id is sent again until it is clear.
"""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TextIO

MOST_WRONG: Final = 10
"""Wrong readings that are kept as text. The others are counted."""


@dataclass(slots=True)
class Sums:
    """The sums of one counter."""

    sent: int = 0
    """All but what was surely refused."""
    accepted: int = 0
    shown: int = 0
    """The largest exact reading."""


class History:
    """Writes to a file, if there is one, what Jepsen's checkers read: a line of EDN when an operation begins, and one
    when it ends as `ok`, `fail` (it did not happen) or `info` (nobody knows). Call it from one thread at a time.

    The value of an operation is `[counter number]`, as independent tests of several keys have it. Each operation has a
    process of its own, since those of one thread may overlap.
    """

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._begun = time.monotonic_ns()
        self._index = 0
        self._processes = 0

    def invoke(self, function: str, counter: str, value: int | None) -> int:
        self._processes += 1
        self._write("invoke", function, counter, value, self._processes)
        return self._processes

    def complete(self, process: int, outcome: str, function: str, counter: str, value: int | None) -> None:
        self._write(outcome, function, counter, value, process)

    def _write(self, kind: str, function: str, counter: str, value: int | None, process: int) -> None:
        if self._file is None:
            return
        said = "nil" if value is None else str(value)
        self._file.write(
            f"{{:index {self._index}, :time {time.monotonic_ns() - self._begun}, :type :{kind}, :f :{function},"
            f" :value [{json.dumps(counter)} {said}], :process {process}}}\n"
        )
        self._index += 1


class Add(NamedTuple):
    """Deltas that are sent together, and the place of each in the history."""

    deltas: Mapping[str, int]
    operations: Mapping[str, int]


class Look(NamedTuple):
    """A read under way: the least that an exact reading may show of each counter, and its place in the history."""

    least: Mapping[str, tuple[int, str]]
    operations: Mapping[str, int]


@dataclass
class Ledger:
    """Threads may use it at once."""

    history: History
    exact: int = 0
    """Exact readings of a counter."""
    inexact: int = 0
    wrong: int = 0
    examples: list[str] = field(default_factory=list)
    """What was wrong with some."""
    sums: defaultdict[str, Sums] = field(default_factory=lambda: defaultdict(Sums))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def accepted_in_all(self) -> int:
        return sum(one.accepted for one in list(self.sums.values()))

    def sends(self, deltas: Mapping[str, int]) -> Add:
        with self._lock:
            for name, delta in deltas.items():
                self.sums[name].sent += delta
            return Add(deltas, {name: self.history.invoke("add", name, delta) for name, delta in deltas.items()})

    def accepted(self, add: Add) -> None:
        with self._lock:
            for name, delta in add.deltas.items():
                self.sums[name].accepted += delta
                self.history.complete(add.operations[name], "ok", "add", name, delta)

    def refused(self, add: Add) -> None:
        """The service said that it did not accept it, and no earlier try was without an answer."""
        with self._lock:
            for name, delta in add.deltas.items():
                self.sums[name].sent -= delta
                self.history.complete(add.operations[name], "fail", "add", name, delta)

    def unclear(self, add: Add) -> None:
        """Nobody knows whether it counted, and nobody asks again."""
        with self._lock:
            for name, delta in add.deltas.items():
                self.history.complete(add.operations[name], "info", "add", name, delta)

    def looks(self, names: Iterable[str]) -> Look:
        with self._lock:
            least = {}
            for name in names:
                sums = self.sums[name]
                least[name] = max(
                    (sums.accepted, "had been accepted before the read began"),
                    (sums.shown, "had been shown by an exact reading before"),
                )
            return Look(least, {name: self.history.invoke("read", name, None) for name in least})

    def saw(self, look: Look, name: str, value: int, *, exact: bool) -> None:
        with self._lock:
            if not exact:
                self.inexact += 1
                self.history.complete(look.operations[name], "info", "read", name, None)
                return
            self.history.complete(look.operations[name], "ok", "read", name, value)
            self.exact += 1
            sums, (least, why) = self.sums[name], look.least[name]
            if value < least:
                self._is_wrong(f"an exact reading of {name} was {value}, though {least} {why}")
            elif value > sums.sent:
                self._is_wrong(f"an exact reading of {name} was {value}, though no more than {sums.sent} was ever sent")
            sums.shown = max(sums.shown, value)

    def saw_nothing(self, look: Look, name: str) -> None:
        with self._lock:
            self.history.complete(look.operations[name], "fail", "read", name, None)

    def _is_wrong(self, why: str) -> None:
        self.wrong += 1
        if len(self.examples) < MOST_WRONG:
            self.examples.append(why)


class Verdict(NamedTuple):
    """Sums over all counters, after everything has ended."""

    accepted: int
    unknown: int
    """Sent without a clear answer: each may have counted, or not."""
    counted: int
    lost: int
    """Accepted and not counted."""
    doubled: int
    """Counted, though never sent so often."""


def judged(sums: Mapping[str, Sums], values: Mapping[str, int]) -> Verdict:
    all_of = [(one, values.get(name, 0)) for name, one in sums.items()]
    return Verdict(
        accepted=sum(one.accepted for one, _ in all_of),
        unknown=sum(one.sent - one.accepted for one, _ in all_of),
        counted=sum(value for _, value in all_of),
        lost=sum(max(0, one.accepted - value) for one, value in all_of),
        doubled=sum(max(0, value - one.sent) for one, value in all_of),
    )

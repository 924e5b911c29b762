"""Writes what happened in the form that Jepsen's checkers read: a line of EDN when an operation begins, and one when
it ends.

The value of an operation is `[counter number]`, as independent tests of several keys have it. Each operation has a
process of its own, since those of one thread may overlap.
"""

import json
import time
from typing import Protocol, TextIO


class History(Protocol):
    def invoke(self, function: str, counter: str, value: int | None) -> int:
        """An operation begins. Returns its process."""

    def complete(self, process: int, outcome: str, function: str, counter: str, value: int | None) -> None:
        """It ended: `ok`, `fail` (it did not happen) or `info` (nobody knows)."""


class NoHistory:
    def invoke(self, _: str, __: str, ___: int | None) -> int:
        return 0

    def complete(self, _: int, __: str, ___: str, ____: str, _____: int | None) -> None:
        pass


class EdnHistory:
    """Writes to a file. Call it from one thread at a time."""

    def __init__(self, file: TextIO) -> None:
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
        said = "nil" if value is None else str(value)
        self._file.write(
            f"{{:index {self._index}, :time {time.monotonic_ns() - self._begun}, :type :{kind}, :f :{function},"
            f" :value [{json.dumps(counter)} {said}], :process {process}}}\n"
        )
        self._index += 1

"""Judges a history of counters as Jepsen's checker does, by its description alone: each read of a counter must lie
between the sum of the adds that had ended before it began, and the sum of those that had begun before it ended.

It shares no code with `countersink check`, which wrote the history.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

_LINE: Final = re.compile(
    r"\{:index (\d+), :time \d+, :type :(invoke|ok|fail|info), :f :(add|read), :value \[\"(.*)\" (nil|\d+)\],"
    r" :process (\d+)\}"
)


class Judged(NamedTuple):
    reads: int
    wrong: list[str]


class Event(NamedTuple):
    kind: str
    function: str
    counter: str
    value: int
    process: str


def judge(lines: Iterable[str]) -> Judged:
    events = [_event(number, line) for number, line in enumerate(lines)]
    failed = {event.process for event in events if event.kind == "fail"}
    lower: dict[str, int] = defaultdict(int)
    upper: dict[str, int] = defaultdict(int)
    least: dict[str, int] = {}
    reads, wrong = 0, []
    for kind, function, counter, value, process in [event for event in events if event.process not in failed]:
        match function, kind:
            case "add", "invoke":
                upper[counter] += value
            case "add", "ok":
                lower[counter] += value
            case "read", "invoke":
                least[process] = lower[counter]
            case "read", "ok":
                reads += 1
                if not least[process] <= value <= upper[counter]:
                    wrong.append(f"{counter} was {value}, not from {least[process]} to {upper[counter]}")
    return Judged(reads, wrong)


def _event(number: int, line: str) -> Event:
    found = _LINE.fullmatch(line.strip())
    assert found, line
    index, kind, function, counter, value, process = found.groups()
    assert int(index) == number
    return Event(kind, function, counter, 0 if value == "nil" else int(value), process)

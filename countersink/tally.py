"""Takes increments from any thread without waiting, and sums them per name.

A caller only appends to a list, which is one step of the interpreter: it needs no lock, neither between threads, nor in
a signal handler, nor after a fork. The sender moves what is in the list to the sums. If it can't keep up, callers help.
"""

import threading
from collections import Counter as Count
from collections.abc import Iterable
from operator import index
from typing import Any, Final, NamedTuple

from countersink.rules import flaw_of_delta, flaw_of_id, flaw_of_name

ONE: Final = 1
CROWDED: Final = 10_000
"""Events in the list from which on a caller moves some to the sums."""
FULL: Final = 1_000_000
"""Events in the list from which on they are dropped. Callers that help keep it far below."""
CHUNK: Final = 2_000
"""Events that are summed without a pause: other threads wait for that long."""

Event = str | tuple[Any, Any, Any]
"""A name to count one for, or name, delta and id. Of events without a name, the second is why they are dropped."""


class Keyed(NamedTuple):
    """Increments with an id. They count once."""

    counter: str
    delta: int
    id: str


Sum = tuple[int, int]
"""The increments of a name: their sum, and how many they are."""


class Tally:
    """Holds at most `most` names and increments with ids, besides as many that were taken to be sent."""

    __slots__ = ("_counting", "_folding", "dropped", "events", "items", "most", "reason", "sums")

    def __init__(self, most: int) -> None:
        self.most = most
        self.clear()

    def clear(self) -> None:
        """Begin anew, also after a fork: another thread of the parent may have held the lock."""
        self.events: list[Event] = []
        self.sums: dict[str, Sum] = {}
        self.items: dict[Keyed, int] = {}
        """How often each was asked for."""
        self.dropped = 0
        """Increments that do not count."""
        self.reason = ""
        """Why the last of them were dropped."""
        self._folding = threading.Lock()
        """Whoever changes the sums holds it. A caller never waits for it: a signal handler's own thread may hold it."""
        self._counting = threading.RLock()

    def held(self) -> int:
        """Names and increments with ids."""
        return len(self.sums) + len(self.items)

    def add(self, name: Any, by: Any, id_: Any) -> None:
        """Take an increment of an unusual form."""
        try:
            event: Event = (str.__str__(name), index(by), None if id_ is None else str.__str__(id_))
        except Exception:  # it may be an object with methods of its own; the caller's program goes on
            event = (None, "the name and the id must be strings, and the delta an integer", None)
        self.events.append(event)

    def help(self) -> None:
        """Called by whoever appended to a crowded list: move some events to the sums, if nobody else does."""
        if self._folding.acquire(blocking=False):
            try:
                self._fold()
            finally:
                self._folding.release()
        elif (lost := len(self.events) - FULL) > 0:
            del self.events[FULL:]
            self.drop(lost, "increments come faster than they can be summed")

    def fold_all(self) -> Iterable[None]:
        """Move all events that are there to the sums, piece by piece."""
        for _ in range(len(self.events) // CHUNK + 1):
            with self._folding:
                self._fold()
            yield

    def take(self) -> tuple[dict[str, Sum], dict[Keyed, int]]:
        """Everything that is summed."""
        with self._folding:
            sums, self.sums = self.sums, {}
            items, self.items = self.items, {}
        return sums, items

    def put_back(self, name: str, delta: int) -> None:
        """What is left of a sum that is too large for one batch."""
        with self._folding:
            there = self.sums.get(name, (0, 0))
            self.sums[name] = (there[0] + delta, there[1])

    def drop(self, calls: int, reason: str) -> None:
        """These increments do not count."""
        with self._counting:
            self.dropped += calls
            self.reason = reason

    def _fold(self) -> None:
        events = self.events
        chunk = events[:CHUNK]
        del events[: len(chunk)]
        for event, times in Count(chunk).items():
            if isinstance(event, str):
                self._sum(event, times, times)
                continue
            name, delta, id_ = event
            if name is None:
                self.drop(times, delta)
            elif flaw := flaw_of_delta(delta):
                self.drop(times, f"the delta {flaw}")
            elif id_ is None:
                self._sum(name, delta * times, times)
            elif flaw := flaw_of_name(name):
                self.drop(times, f"the counter's name {flaw}")
            elif flaw := flaw_of_id(id_):
                self.drop(times, f"the id {flaw}")
            else:
                item = Keyed(name, delta, id_)
                if item in self.items or self._has_room(times):
                    self.items[item] = self.items.get(item, 0) + times

    def _sum(self, name: str, delta: int, times: int) -> None:
        there = self.sums.get(name)
        if there is not None:
            self.sums[name] = (there[0] + delta, there[1] + times)
        elif flaw := flaw_of_name(name):
            self.drop(times, f"the counter's name {flaw}")
        elif self._has_room(times):
            self.sums[name] = (delta, times)

    def _has_room(self, times: int) -> bool:
        if self.held() < self.most:
            return True
        self.drop(times, f"{self.most} names and ids are held already, and the service does not take them")
        return False

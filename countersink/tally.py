"""Takes increments from any thread without waiting, and sums them per name.

A caller only appends to a list, which is one step of the interpreter: it needs no lock, neither between threads, nor in
a signal handler, nor after a fork. Our threads move what is in the list to the sums: the sender, and, if the list is
crowded while the sender waits for the service, a helper. Only they use the locks, so no signal handler meets one.
"""

import contextlib
import time
from collections import Counter as Count
from collections.abc import Callable, Iterable, Mapping
from itertools import islice, repeat
from operator import index, length_hint
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

from countersink.interrupts import Bell, start
from countersink.rules import flaw_of_delta, flaw_of_id, flaw_of_name

ONE: Final = 1
CROWDED: Final = 10_000
"""Events in the list from which on a helper moves them to the sums, and callers leave it the time for that."""
FULL: Final = 1_000_000
"""Events in the list from which on they are dropped. It happens only if no thread can start."""
CHUNK: Final = 2_000
"""Events that are summed without a pause: other threads wait for that long."""
YIELD: Final = 50e-6
"""Seconds in which others get the interpreter's lock. With `sleep(0)` a thread has it again before they wake."""
IDLE: Final = 1.0
"""Seconds after which a helper that is not needed ends."""
_MANY: Final = 2**62

K = TypeVar("K")
V = TypeVar("V")

Event = str | tuple[Any, Any, Any]
"""A name to count one for, or name, delta and id. Without a name, the second is the reason why it is dropped, and the
third the name if it is known.
"""


class Keyed(NamedTuple):
    """Increments with an id. They count once."""

    counter: str
    delta: int
    id: str


Sum = tuple[int, int]
"""The increments of a name: their sum, and how many they are."""


class Tally:
    """Holds at most `most` names and increments with ids, besides as many that were taken to be sent."""

    __slots__ = (
        "_bell", "_closed", "_counting", "_folding", "_helping", "_refused", "drops", "events", "items", "most", "sums"
    )  # fmt: skip

    def __init__(self, most: int) -> None:
        self.most = most
        self.clear()

    def clear(self) -> None:
        """Begin again, as after a fork: another thread of the parent may have held a lock."""
        self.events: list[Event] = []
        self.sums: dict[str, Sum] = {}
        self.items: dict[Keyed, int] = {}
        """How often each was asked for."""
        self.drops: dict[str, tuple[int, str]] = {}
        """How many increments do not count, by the kind of reason, and why the first of them does not."""
        self._refused = repeat(None, _MANY)
        """It has one less for each event that was refused. Taking one is a single step of the interpreter."""
        self._closed = False
        self._folding = Lock()
        """Whoever moves events to the sums, or changes the sums, holds it."""
        self._counting = Lock()
        self._helping = Lock()
        """The helper holds it while it runs."""
        self._bell = Bell()

    @property
    def dropped(self) -> int:
        return sum(calls for calls, _ in list(self.drops.values())) + _MANY - length_hint(self._refused)

    def held(self) -> int:
        return len(self.sums) + len(self.items)

    def add(self, name: Any, by: Any, id_: Any) -> None:
        """Take an increment of an unusual form."""
        plain = type(name) is str and type(by) is int and (id_ is None or type(id_) is str)
        self.events.append((name, by, id_) if plain else _event(name, by, id_))

    def relieve(self, then: Callable[[], None]) -> None:
        """Called by whoever appended to a crowded list: let the helper move events to the sums. It calls `then` after
        each piece.
        """
        if len(self.events) > FULL:
            self.refuse("increments come faster than they can be summed")
        elif self._helping.locked():
            self._bell.ring()
            time.sleep(YIELD)
        elif start(self._help, then):
            time.sleep(YIELD)

    def refuse(self, reason: str) -> None:
        """Take one event back. That and the count are one step of the interpreter."""
        self.drops.setdefault(reason, (0, reason))
        with contextlib.suppress(IndexError):  # another thread took it
            next(zip(iter(self.events.pop, None), self._refused, strict=False))

    def fold_all(self) -> Iterable[None]:
        """Move all events that are there to the sums, piece by piece."""
        for _ in range(len(self.events) // CHUNK + 1):
            with self._folding:
                if not self._closed:
                    self._fold()
            yield

    def take(self, most: int | None = None) -> tuple[dict[str, Sum], dict[Keyed, int]]:
        """At most this many names and ids, the first counted ones first. Without a limit, for the last time:
        nothing is summed after it.
        """
        with self._folding:
            self._closed = most is None
            sums, self.sums = _apart(self.sums, most)
            items, self.items = _apart(self.items, None if most is None else most - len(sums))
        return sums, items

    def put_back(self, rest: Mapping[str, Sum]) -> None:
        """What is left of sums that are too large for one batch."""
        with self._folding:
            for name, (delta, calls) in rest.items():
                there = self.sums.get(name, (0, 0))
                self.sums[name] = (there[0] + delta, there[1] + calls)

    def drop(self, calls: int, reason: str, kind: str = "", name: str = "") -> None:
        """These increments do not count. Of the reasons of one kind, the first is kept, with the counter's name."""
        kind = kind or reason.rstrip("0123456789")  # such as the size of a name
        if name:
            reason += f" (counter {name[:50]!r})"
        with self._counting:
            before, first = self.drops.get(kind, (0, reason))
            self.drops[kind] = (before + calls, first)

    def _help(self, then: Callable[[], None]) -> None:
        if not self._helping.acquire(blocking=False):
            return
        try:
            while True:
                for _ in self.fold_all():
                    then()
                    time.sleep(YIELD)
                if len(self.events) <= CROWDED and not self._bell.wait(IDLE):
                    break
        finally:
            self._helping.release()

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
                self.drop(times, delta, name=id_ or "")
            elif flaw := flaw_of_delta(delta):
                self.drop(times, f"the delta {flaw}", name=name)
            elif id_ is None:
                self._sum(name, delta * times, times)
            elif flaw := flaw_of_name(name):
                self.drop(times, f"the counter's name {flaw}", name=name)
            elif flaw := flaw_of_id(id_):
                self.drop(times, f"the id {flaw}", name=name)
            else:
                item = Keyed(name, delta, id_)
                if item in self.items or self._has_room(times):
                    self.items[item] = self.items.get(item, 0) + times

    def _sum(self, name: str, delta: int, times: int) -> None:
        there = self.sums.get(name)
        if there is not None:
            self.sums[name] = (there[0] + delta, there[1] + times)
        elif flaw := flaw_of_name(name):
            self.drop(times, f"the counter's name {flaw}", name=name)
        elif self._has_room(times):
            self.sums[name] = (delta, times)

    def _has_room(self, times: int) -> bool:
        if self.held() < self.most:
            return True
        self.drop(times, f"{self.most} names and ids that are not sent yet are held already")
        return False


def _apart(all_of_it: dict[K, V], most: int | None) -> tuple[dict[K, V], dict[K, V]]:
    if most is None or len(all_of_it) <= most:
        return all_of_it, {}
    rest = iter(all_of_it.items())
    return dict(islice(rest, max(most, 0))), dict(rest)


def _event(name: Any, by: Any, id_: Any) -> Event:
    """An event with exact types. Only `index` may run code of the caller's objects, and fail in any way."""
    known = str.__str__(name) if issubclass(type(name), str) else None
    if known is not None and (id_ is None or issubclass(type(id_), str)):
        id_ = None if id_ is None else str.__str__(id_)
        if issubclass(type(by), int):
            return known, int.__index__(by), id_
        try:
            return known, index(by), id_
        except Exception:  # noqa: S110 (the caller's program goes on)
            pass
    return None, "the name and the id must be strings, and the delta an integer", known

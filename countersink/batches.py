"""Divides what was summed into requests. Each keeps its key and its bytes, however often it is sent."""

import json
import time
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

from countersink.answers import RequestError
from countersink.calls import MOST_ITEMS, mint
from countersink.rules import MAX_DELTA
from countersink.tally import Keyed, Sum
from countersink.transport import Answer, Request, Retries, now

LARGEST: Final = 256 * 1024
"""Bytes of a body, about. Proxies often refuse a megabyte."""
SHORTEST_PAUSE: Final = 0.1
"""Seconds until a batch that failed is tried again, while somebody waits."""


class Pause(NamedTuple):
    """Until when to wait."""

    shortest: float
    """While somebody waits for it."""
    full: float


NONE: Final = Pause(0.0, 0.0)


def pause_of(retries: Retries, error: RequestError) -> Pause:
    """After this error, from now on."""
    now, delay = time.monotonic(), retries.delay(error)
    return Pause(now + max(error.retry_after, min(delay, SHORTEST_PAUSE)), now + delay)


class Batch:
    """Sums under a key of their own, or increments with ids. Both count once, however often they are sent."""

    def __init__(self, sums: Mapping[str, Sum], items: Mapping[Keyed, int]) -> None:
        self._sums = sums
        self._items = items
        self.doubtful = False
        """Whether it may have been accepted: an attempt had no clear answer. From then its key and its bytes stay."""
        self._made = now()
        self.turn = 0
        """When it was taken. Parts have that of the whole."""
        self.tries = 0
        self.retries = Retries()
        self.pause = NONE
        """When it may be tried again."""

    @cached_property
    def request(self) -> Request:
        headers: dict[str, str] = {}
        content: Any
        if self._items:
            content = [item._asdict() for item in self._items]
        else:
            content = {"counters": {name: delta for name, (delta, _) in self._sums.items()}}
            headers["Idempotency-Key"] = mint()
        body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        return Request("POST", "/v1/increments", body, headers)

    @property
    def age(self) -> float:
        """Seconds."""
        return now() - self._made

    def __len__(self) -> int:
        """Names and increments with ids."""
        return len(self._sums) + len(self._items)

    @property
    def calls(self) -> int:
        return sum(calls for _, calls in self._sums.values()) + sum(self._items.values())

    @property
    def divisible(self) -> bool:
        """Whether its parts may be sent instead: under new keys, or, where each increment has an id, as they are."""
        return len(self) > 1 and (bool(self._items) or not self.doubtful)

    def parts(self, refused: Collection[str] = ()) -> "list[Batch]":
        """The same in two, if it is `divisible`: what has these names, and the others; or halves. Each half has every
        second name, as bad ones often come together. Empty if there is nothing to divide.
        """
        if not self.divisible:
            return []
        names = {*refused} & {*self._sums, *(item.counter for item in self._items)}
        found: list[list[Any]] = [[], []]
        for number, (key, value) in enumerate((self._sums or self._items).items()):
            name = key.counter if isinstance(key, Keyed) else key
            found[name not in names if names else number % 2].append((key, value))
        return [self._part(dict(part)) for part in found] if all(found) else []

    def _part(self, part: dict[Any, Any]) -> "Batch":
        it = Batch({}, part) if self._items else Batch(part, {})
        it.doubtful, it.turn, it._made = self.doubtful, self.turn, self._made  # noqa: SLF001 (its own class)
        return it

    def rejected(self, answer: Answer) -> tuple[int, str]:
        """How many calls are in the items that the service did not accept, and why. Raises if it is no answer of
        Countersink's.
        """
        found = answer.object
        accepted, flaws = found["accepted"], found.get("rejected", ())
        if type(accepted) is not int:
            raise TypeError
        rest = dict(enumerate(self._entries()))
        calls = 0
        for flaw in flaws:
            number = flaw["index"] if "index" in flaw else _first(rest, flaw["counter"])
            calls += rest.pop(number)[2] if number is not None else 0
        # The answer names the first 100. The others are most likely refused for their deltas, which a key may limit.
        likely = sorted(rest.values(), key=lambda entry: (entry[1] >= 0, -abs(entry[1])))
        calls += sum(entry[2] for entry in likely[: max(found.get("rejected_count", 0) - len(flaws), 0)])
        return calls, str(flaws[0]["reason"]) if flaws else ""

    def _entries(self) -> "list[tuple[str, int, int]]":
        """The counter, the delta and the calls of each item."""
        if self._items:
            return [(item.counter, item.delta, calls) for item, calls in self._items.items()]
        return [(name, delta, calls) for name, (delta, calls) in self._sums.items()]


def _first(rest: Mapping[int, tuple[str, int, int]], name: str) -> int | None:
    return next((number for number, entry in rest.items() if entry[0] == name), None)


def batches(sums: Mapping[str, Sum], items: Mapping[Keyed, int], rest: dict[str, Sum]) -> Iterator[Batch]:
    """All of it. What is left of sums that are too large for one batch comes into `rest`, with its share of calls."""
    for part in _parts(sums, len):
        for name, (delta, calls) in part.items():
            if not -MAX_DELTA <= delta <= MAX_DELTA:
                share = min(max(calls * MAX_DELTA // abs(delta), 1), calls)
                part[name] = (max(-MAX_DELTA, min(delta, MAX_DELTA)), share)
                rest[name] = (delta - part[name][0], calls - share)
        yield Batch(part, {})
    for part in _parts(items, lambda item: len(item.counter) + len(item.id)):
        yield Batch({}, part)


def _parts(all_of_it: Mapping[Any, Any], size_of: Any) -> Iterator[dict[Any, Any]]:
    part: dict[Any, Any] = {}
    size = 0
    for key, value in all_of_it.items():
        more = 4 * size_of(key) + 60  # characters have at most 4 bytes
        if part and (len(part) == MOST_ITEMS or size + more > LARGEST):
            yield part
            part, size = {}, 0
        part[key] = value
        size += more
    if part:
        yield part

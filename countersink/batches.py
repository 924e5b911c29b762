"""Divides what was summed into requests. Each keeps its key and its bytes, however often it is sent."""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from countersink.calls import MOST_ITEMS, mint
from countersink.rules import MAX_DELTA
from countersink.tally import Keyed, Sum
from countersink.transport import Answer, Request, now

LARGEST: Final = 256 * 1024
"""Bytes of a body, about. Proxies often refuse a megabyte."""


class Batch:
    """Sums under a key of their own, or increments with ids. Both count once, however often they are sent."""

    def __init__(self, sums: Mapping[str, Sum], items: Mapping[Keyed, int]) -> None:
        self._sums = sums
        self._items = items
        self.doubtful = False
        """Whether it may have been accepted: an attempt had no clear answer. From then its key and its bytes stay."""
        self._made = now()

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
        """Whether its halves may be sent instead: under new keys, or, where each increment has an id, as they are."""
        return len(self) > 1 and (bool(self._items) or not self.doubtful)

    def halves(self) -> "list[Batch]":
        """The batch as two halves under new keys. Only a batch that is `divisible` can be divided."""
        middle = len(self) // 2
        sums, items = list(self._sums.items()), list(self._items.items())
        found = [Batch(dict(sums[part]), dict(items[part])) for part in (slice(None, middle), slice(middle, None))]
        for half in found:
            half.doubtful, half._made = self.doubtful, self._made  # noqa: SLF001 (its own class)
        return found

    def rejected(self, answer: Answer) -> tuple[int, str]:
        """How many calls are in the items that the service did not accept, and why. Raises if it is no answer of
        Countersink's.
        """
        found = answer.object
        accepted, flaws = found["accepted"], found.get("rejected", ())
        if type(accepted) is not int:
            raise TypeError
        calls = max(found.get("rejected_count", 0) - len(flaws), 0)  # the answer does not name the others
        for flaw in flaws:
            calls += self._calls_of(flaw)
        return calls, str(flaws[0]["reason"]) if flaws else ""

    def _calls_of(self, flaw: Mapping[str, Any]) -> int:
        """The calls of one rejected item: its index is in the answer, or its counter."""
        if "index" in flaw:
            return list(self._items.values())[int(flaw["index"])]
        name = flaw["counter"]
        if name in self._sums:
            return self._sums[name][1]
        return next((calls for item, calls in self._items.items() if item.counter == name), 1)


def batches(sums: Mapping[str, Sum], items: Mapping[Keyed, int], rest: dict[str, int]) -> Iterator[Batch]:
    """All of it. What is left of sums that are too large for one batch comes into `rest`."""
    for part in _parts(sums, len):
        for name, (delta, calls) in part.items():
            if not -MAX_DELTA <= delta <= MAX_DELTA:
                part[name] = (max(-MAX_DELTA, min(delta, MAX_DELTA)), calls)
                rest[name] = delta - part[name][0]
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

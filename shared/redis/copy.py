"""Owns a copy of what this process entered and nobody has settled: read while Redis is away, and written again later.

Pure: time is an argument.
"""

import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Final
from uuid import uuid4

from shared.counters.pending import Pending
from shared.model.envelope import Envelope
from shared.model.errors import OverloadedError
from shared.model.words import View
from shared.redis.entries import Attempt

FIRST_LOOK: Final = 2.0
"""Seconds until Redis is asked whether another process has settled an attempt. They double with each look."""
LOCAL: Final = "local"
"""The epoch of views that come from this copy."""


class Copy:
    """The attempts of this process. A copy that has `most_entries` takes no more."""

    def __init__(self, most_entries: int) -> None:
        self._most_entries = most_entries
        self._pending = Pending(exact=False)
        self._attempts: dict[int, Attempt] = {}
        self._by_key: dict[str, set[int]] = {}
        self._due: list[tuple[float, int]] = []
        self._numbers = count(1)
        self._process = uuid4().hex[:12]
        self.entries = 0
        self.floor = 0
        """The highest floor at which something was settled here. An earlier snapshot may lack it."""

    def add(self, envelopes: Iterable[Envelope], now: float, published: int) -> list[Attempt]:
        """Add unconfirmed attempts. They are published at `published` (ms, store's clock) or later."""
        if self.entries >= self._most_entries:
            raise OverloadedError(
                f"{self.entries} entries wait to be applied, and the overlay's copy in this process holds no more:"
                " do the flushers keep up?"
            )
        attempts = []
        for envelope in envelopes:
            number = next(self._numbers)
            attempt = Attempt(number, envelope, f"{self._process}.{number}", published, now)
            self._hold(attempt)
            self._pending.add(number, envelope, confirmed=False)
            attempts.append(attempt)
        return attempts

    def confirm(self, attempt: Attempt, *, late: bool = False) -> None:
        """Count the attempt. It is added again, as late, if it is gone. Pass `late` if Redis may not have it."""
        attempt.confirmed = True
        if attempt.number in self._attempts and not late:
            self._pending.confirm(attempt.number)
            return
        if attempt.number in self._attempts:
            self._pending.withdraw(attempt.number)
        else:
            self._hold(attempt)
        self._pending.add(attempt.number, attempt.envelope, late=True)

    def withdraw(self, attempt: Attempt) -> None:
        if attempt.number in self._attempts:
            self._let_go(attempt)
            self._pending.withdraw(attempt.number)

    def settle(self, keys: Collection[str], floor: int) -> None:
        numbers = {number for key in keys for number in self._by_key.get(key, ())}
        self.gone([self._attempts[number] for number in sorted(numbers)], floor)

    def gone(self, attempts: Iterable[Attempt], floor: int) -> None:
        """Remove attempts that were settled, at `floor` or before."""
        self.floor = max(self.floor, floor)
        for attempt in attempts:
            if attempt.number in self._attempts:
                self._let_go(attempt)
                self._pending.remove([attempt.number], floor)

    def raise_floor(self, counter: str, floor: int) -> None:
        self.floor = max(self.floor, floor)
        self._pending.raise_floor(counter, floor)

    def confirmed(self) -> list[Attempt]:
        """The attempts that have to be in Redis before this process may join."""
        return [attempt for attempt in self._attempts.values() if attempt.confirmed]

    def due(self, now: float, limit: int) -> list[Attempt]:
        """Confirmed attempts that are due for another look."""
        found: list[Attempt] = []
        while self._due and self._due[0][0] <= now and len(found) < limit:
            _, number = heapq.heappop(self._due)
            attempt = self._attempts.get(number)
            if attempt is not None and attempt not in found:
                attempt.wait *= 2
                heapq.heappush(self._due, (now + attempt.wait, number))
                if attempt.confirmed:
                    found.append(attempt)
        return found

    def view(self, counters: Sequence[str]) -> dict[str, View]:
        return {counter: replace(self._pending.view(counter), epoch=LOCAL) for counter in counters}

    def names(self, prefix: str) -> list[str]:
        return self._pending.names(prefix)

    def holds(self, keys: Collection[str]) -> set[str]:
        return self._pending.holds(keys)

    def _hold(self, attempt: Attempt) -> None:
        self._attempts[attempt.number] = attempt
        self.entries += attempt.entries
        self._by_key.setdefault(attempt.envelope.key, set()).add(attempt.number)
        attempt.wait = FIRST_LOOK
        heapq.heappush(self._due, (attempt.born + FIRST_LOOK, attempt.number))

    def _let_go(self, attempt: Attempt) -> None:
        del self._attempts[attempt.number]
        self.entries -= attempt.entries
        numbers = self._by_key[attempt.envelope.key]
        numbers.discard(attempt.number)
        if not numbers:
            del self._by_key[attempt.envelope.key]

"""A plan says what one client sends: requests, where they are cut into pieces, and the pauses between these."""

import itertools
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import Final

from tests.http.fuzz.requests import Request, request
from tests.http.fuzz.side import BODY_TIMEOUT

AT_ONCE: Final = 0.0
SETTLE: Final = 0.06
"""Virtual seconds in which a request is answered: longer than a publish takes."""
TURNS: Final = -1.0
"""As many turns of the event loop: shorter than any time."""
_MOST_SINGLE_BYTES: Final = 400


@dataclass(frozen=True)
class Plan:
    """What is sent, and to what kind of server."""

    requests: tuple[Request, ...]
    cuts: dict[int, float]
    """The pause after the piece that ends there: seconds, or turns of the event loop if it is negative."""
    keys: bool = False
    """Whether the server knows keys."""
    delay: float = 0.0
    """Seconds that a publish takes."""
    slow: bool = False
    """Whether the client is slow to read answers."""
    ends: bool = False
    """Whether the client says at the end that it sends nothing more."""

    @property
    def stream(self) -> bytes:
        return b"".join(request.data for request in self.requests)

    def pieces(self) -> list[tuple[bytes, float]]:
        stream = self.stream
        ends = [*sorted(self.cuts), len(stream)]
        return [
            (stream[begin:end], self.cuts.get(end, SETTLE))
            for begin, end in zip([0, *ends], ends, strict=False)
            if begin < end
        ]

    def is_framed(self) -> bool:
        """Whether each request may be sent on a connection of its own, and must be answered the same."""
        return not self.ends and self._within() < BODY_TIMEOUT / 2 and all(request.framed for request in self.requests)

    def _within(self) -> float:
        """How long the client waits before all requests are complete, without the pauses between them."""
        ends = {*accumulate(len(request.data) for request in self.requests)}
        return sum(max(pause, 0) for cut, pause in self.cuts.items() if cut not in ends)

    def without_request(self, index: int) -> "Plan":
        begin = sum(len(request.data) for request in self.requests[:index])
        size = len(self.requests[index].data)
        cuts = {
            (cut if cut <= begin else max(begin, cut - size)): pause
            for cut, pause in self.cuts.items()
            if not begin < cut < begin + size
        }
        return replace(self, requests=(*self.requests[:index], *self.requests[index + 1 :]), cuts=_inner(cuts))

    def without_cut(self, cut: int) -> "Plan":
        return replace(self, cuts={other: pause for other, pause in self.cuts.items() if other != cut})


def plan(seed: int) -> Plan:
    """What this seed says."""
    chance = Random(seed)
    undurable = chance.random() < 0.2
    requests = tuple(request(chance, undurable=undurable) for _ in range(chance.choice((1, 2, 2, 3, 3, 4, 5, 8))))
    return Plan(
        requests,
        _cuts(chance, requests),
        keys=chance.random() < 0.6,
        delay=chance.choice((0.0, 0.0, 0.01)),
        slow=chance.random() < 0.1,
        ends=chance.random() < 0.1,
    )


def framed(number: int) -> list[Plan]:
    """The first plans that mean the same over a socket, where the kernel cuts as it likes. One that asks whether its
    body may come does not: the answer depends on the pieces.
    """
    plans = (one for one in map(plan, itertools.count()) if one.is_framed() and b"100-continue" not in one.stream)
    return [*itertools.islice(plans, number)]


def _cuts(chance: Random, requests: tuple[Request, ...]) -> dict[int, float]:
    ends = [*accumulate(len(request.data) for request in requests)]
    length = ends[-1]
    kind = chance.random()
    if kind < 0.5:  # one after the other
        cuts = dict.fromkeys(ends, SETTLE)
    elif kind < 0.6:
        cuts = {end: _pause(chance) for end in ends}
    elif kind < 0.67 and length <= _MOST_SINGLE_BYTES:
        cuts = dict.fromkeys(range(1, length), _pause(chance))
    else:
        cuts = {chance.randint(0, length): _pause(chance) for _ in range(chance.choice((0, 1, 2, 4, 12)))}
        cuts |= {end: _pause(chance) for end in ends if chance.random() < 0.4}
        cuts |= {end - chance.randint(1, 40): _pause(chance) for end in ends if chance.random() < 0.4}
    if cuts and chance.random() < 0.05:
        cuts[chance.choice([*cuts])] = 2 * BODY_TIMEOUT
    return _inner({cut: pause for cut, pause in cuts.items() if cut < length})


def _pause(chance: Random) -> float:
    return chance.choice((AT_ONCE, AT_ONCE, SETTLE, SETTLE, 0.005, *(number * TURNS for number in (1, 2, 3, 5, 9))))


def _inner(cuts: dict[int, float]) -> dict[int, float]:
    return {cut: pause for cut, pause in cuts.items() if cut > 0}

"""One id, two messages that hold it, and the two generations of ids in a file: it is counted once. Time in ticks.

The client sends the id again, at most `LIFE` after its first use was accepted. A message may wait for any time, and may
be delivered again until it is acknowledged. Other ids come at any time, and so do sweeps. A slice of an expired
generation may take the id at once, or later. See docs/adr/0029.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.interleavings.models.explore import RuledModel, put

LIFE: Final = 2
END: Final = 7
NEVER: Final = -1
GONE: Final = END + 1
"""A message that was acknowledged."""
RULES: Final = frozenset({"both", "greatest", "inside", "file time", "oldest", "elder first"})
"""Each of them is needed: a commit looks in both generations; a generation lives as long as the last of its ids; the
commit's transaction chooses the generation; only the file's time decides; no receipt is deleted that lived when the
oldest message was accepted; the younger becomes the elder only when nothing is left of the elder before it.
"""


class Generation(NamedTuple):
    number: int
    expires: int = 0
    holds: bool = False
    """Whether it has the id."""


class State(NamedTuple):
    now: int = 0
    accepted: tuple[int, ...] = (NEVER, NEVER)
    """When each message was accepted, while it is there."""
    first: int = NEVER
    """When the first was accepted."""
    elder: Generation = Generation(0)
    younger: Generation = Generation(1)
    chosen: int = NEVER
    """The generation that a flusher chose before its commit; only without the rule "inside"."""
    counted: int = 0


class Model(RuledModel):
    rules = RULES

    @staticmethod
    def flaw(state: State) -> str | None:
        return "it is counted twice" if state.counted > 1 else None

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        if s.now < END:
            yield f"time {s.now + 1}", s._replace(now=s.now + 1)
        yield from self._accept(s)
        if "inside" not in self._rules and s.chosen == NEVER:
            yield "a flusher chooses the younger", s._replace(chosen=s.younger.number)
        yield "another id is counted", self._insert(s, holds=False)
        for number in (0, 1):
            if NEVER < s.accepted[number] < GONE:
                yield f"message {number} is committed", self._commit(s)
                yield f"message {number} is acknowledged", _with(s, number, GONE, settled=s.counted > 0)
        yield from self._sweep(s)

    def _accept(self, s: State) -> Iterator[tuple[str, State]]:
        if s.first == NEVER:
            yield "the first use is accepted", _with(s, 0, s.now)._replace(first=s.now)
        elif s.accepted[1] == NEVER and s.now <= s.first + LIFE:
            yield "it is accepted again", _with(s, 1, s.now)

    def _commit(self, s: State) -> State:
        known = s.younger.holds or (s.elder.holds and "both" in self._rules)
        return s if known else self._insert(s, holds=True)._replace(counted=s.counted + 1)

    def _insert(self, s: State, *, holds: bool) -> State:
        into = s.younger.number if s.chosen == NEVER else s.chosen
        after = s._replace(chosen=NEVER)
        one = s.elder if into == s.elder.number else s.younger
        if into not in {s.elder.number, s.younger.number}:
            return after  # its rows belong to no generation any more
        expires = s.now + LIFE
        if one.expires and "greatest" not in self._rules:
            expires = one.expires
        one = one._replace(expires=expires if one is s.younger else one.expires, holds=one.holds or holds)
        return after._replace(elder=one) if into == s.elder.number else after._replace(younger=one)

    def _sweep(self, s: State) -> Iterator[tuple[str, State]]:
        before = s.now if "file time" in self._rules else END
        if "oldest" in self._rules:
            before = min([before, *(one for one in s.accepted if NEVER < one < GONE)])
        if "elder first" not in self._rules and s.younger.expires:  # each 8 days, whatever is left of the elder
            yield "the generations turn", _turned(s)
        if s.elder.expires >= before:
            return
        yield "a slice of the elder is deleted", s._replace(elder=s.elder._replace(holds=False))
        if not s.elder.holds and s.younger.expires:
            yield "the last slice is deleted", _turned(s)


def _turned(s: State) -> State:
    return s._replace(elder=s.younger, younger=Generation(s.younger.number + 1))


def _with(s: State, number: int, accepted: int, *, settled: bool = True) -> State:
    return s._replace(accepted=put(s.accepted, number, accepted)) if settled else s

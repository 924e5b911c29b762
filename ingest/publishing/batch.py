"""Increments on their way into an envelope: what one request brought, or, as a draft, what waits for a publish."""

from dataclasses import dataclass, field

from shared.model.envelope import Envelope
from shared.model.words import Increment


@dataclass(slots=True)
class Batch:
    """Sums and counts of the increments without an id; those with one, kept apart."""

    sums: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Where not 1."""
    keyed: list[Increment] = field(default_factory=list)
    increments: int = 0
    id: str = ""
    """Of the envelope that a draft becomes."""
    attempt: str = ""
    """Where the id is a client's: which use of it this is."""
    weight: int = 0
    """Sum of the |deltas| of the increments with an id, in a draft."""
    senders: dict[str, int] = field(default_factory=dict)
    """Tenants, and how much each of them holds of what waits until this draft has left."""

    def entries(self) -> int:
        """What it takes of the room in an envelope."""
        return len(self.sums) + len(self.keyed)

    def apart(self) -> "tuple[Batch, Batch]":
        """The increments without an id, and those with one."""
        keyed = Batch(keyed=self.keyed, increments=len(self.keyed))
        return Batch(self.sums, self.counts, [], self.increments - keyed.increments), keyed

    def by_counter(self) -> dict[str, int]:
        """Increments of each counter, with and without an id."""
        found = dict.fromkeys(self.sums, 1)
        found.update(self.counts)
        for item in self.keyed:
            found[item.counter] = found.get(item.counter, 0) + 1
        return found

    def close(self, created: int) -> Envelope:
        keyed, retried = tuple(self.keyed), bool(self.attempt)
        return Envelope(self.id, self.sums, self.counts, keyed, created, self.increments, retried, self.attempt)

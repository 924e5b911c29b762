"""What a broker took, as a truth of its own; and whether the store accounts for all of it, once."""

import asyncio
from collections.abc import Sequence

from countersink_server.cli.audit import AGREES, judge, look
from shared.model.errors import BrokerRejectedError
from shared.model.receipts import Tally
from shared.model.words import Delivery, Message
from shared.ports.broker import Check, at_any_time
from shared.wire.codec import decode
from tests.interleavings.simulation.poison import PickyStore, total
from tests.interleavings.steps.changes import split
from tests.world.memory.broker import MemoryBroker
from tests.world.memory.letters import BuriesApart
from tests.world.series import everything


class CountingBroker(MemoryBroker):
    """Remembers each use of each id, with its increments, whatever becomes of the messages. Copies are one use."""

    def __init__(self, clock: object, lease: float) -> None:
        super().__init__(clock, lease)  # type: ignore[arg-type] # any clock will do
        self.taken: dict[tuple[str, str], int] = {}
        self.foreign: dict[tuple[str, str], int] = {}
        """Those of them that no ingest has accepted."""

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        last = self._last
        await super().publish(messages, check)
        for number in range(last + 1, self._last + 1):
            held = self._messages[number]
            for envelope in decode(Delivery("", held.message, str(number), held.published), "memory"):
                self.taken[envelope.key, envelope.attempt] = envelope.increments
                if envelope.foreign:
                    self.foreign[envelope.key, envelope.attempt] = envelope.increments


class CountingApart(CountingBroker, BuriesApart):
    """The same, of a broker that keeps its dead letters apart, and that refuses some messages for a while."""

    def __init__(self, clock: object, lease: float) -> None:
        super().__init__(clock, lease)
        self.refused: dict[str, float] = {}
        """Counters whose messages it does not take, and until when; "" stands for all."""

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        now = asyncio.get_running_loop().time()
        guilty = [f'"{name}"'.encode() if name else b"" for name, until in self.refused.items() if until > now]
        if any(name in message.data for name in guilty for message in messages):
            raise BrokerRejectedError("a schema that these do not fit")
        await super().publish(messages, check)


async def check(broker: CountingBroker, store: PickyStore) -> None:
    """At rest, when no letter is dead any more, the shards hold what the receipts say; and those account for all that
    was taken, once, and so do the commits: what the shards hold is applied, and the rest were second uses.
    """
    ledger = await look(store, (), 0)
    try:
        lines = list(ledger.lines())
        for line in lines:
            assert judge(line, 0).mark == AGREES, line
        found = [split(line.held)[1] | store.epochs(line.counter)[-1].found for line in lines]
        applied = sum(map(int.bit_count, found))
        async with store.snapshot() as snapshot:
            for line, mask in zip(lines, found, strict=True):
                for by in ("hour", "day"):
                    buckets = (await snapshot.counts(*everything(line.counter, by)[:4])).buckets
                    assert split(sum(buckets.values())) == (0, mask), f"{line.counter} by {by}: {buckets}"
        truth = Tally(applied, sum(broker.taken.values()) - applied, 0, sum(broker.foreign.values()))
        if store.has_swept:  # what was given up for its age had been applied, and counts as dead all the same
            truth = truth._replace(dead=store.tally.dead, foreign=store.tally.foreign)
        said = total([ledger.tally, store.swept])
        assert said[:3] == truth[:3], f"receipts: {said}, truth: {truth}"
        assert store.tally == truth, f"commits: {store.tally}, truth: {truth}"
    finally:
        ledger.close()

"""What a broker took, as a truth of its own; and whether the store accounts for all of it, once."""

from collections.abc import Sequence

from countersink.audit import AGREES, judge, look
from shared.codec import decode
from shared.memory.broker import MemoryBroker
from shared.memory.store import MemoryStore
from shared.words import Delivery, Message
from tests.path.letters import BuriesApart


class CountingBroker(MemoryBroker):
    """Remembers each use of each id, with its increments, whatever becomes of the messages. Copies are one use."""

    def __init__(self, clock: object, lease: float) -> None:
        super().__init__(clock, lease)  # type: ignore[arg-type] # any clock will do
        self.taken: dict[tuple[str, str], int] = {}
        self.ever_buried = False

    async def publish(self, messages: Sequence[Message]) -> None:
        last = self._last
        await super().publish(messages)
        for number in range(last + 1, self._last + 1):
            held = self._messages[number]
            envelope = decode(Delivery("", held.message, str(number), held.published), "memory")
            self.taken[envelope.id, envelope.attempt] = envelope.increments()

    async def bury(self, delivery: Delivery, reason: str) -> None:
        self.ever_buried = True
        await super().bury(delivery, reason)


class CountingApart(CountingBroker, BuriesApart):
    """The same, of a broker that keeps its dead letters apart."""


async def check(broker: CountingBroker, store: MemoryStore) -> None:
    """At rest the shards hold what the receipts say, and those account for all that was taken, once.

    The latter not where messages became dead letters: of second uses of an id whose first use is one, too, receipts may
    call one dead that a replay has settled, if flushers were killed between giving up and burying.
    """
    ledger, exact = await look(store, (), 0)
    try:
        assert exact
        for line in ledger.lines():
            assert judge(line, 0, exact=True).mark == AGREES, line
        if not broker.ever_buried:
            settled, taken = sum(ledger.tally[:3]), sum(broker.taken.values())
            assert settled == taken, f"{ledger.tally} of {taken} increments"
    finally:
        ledger.close()

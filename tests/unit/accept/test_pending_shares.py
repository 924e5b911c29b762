"""What a client is refused for is what really waits."""

from collections.abc import Sequence

from ingest.accept.admission import PendingShares
from ingest.accept.drafts import Draft
from shared.model.words import Message
from shared.ports.broker import Check, at_any_time
from tests.world.manual_clock import ManualClock

MOST = 32 * 2**20


class Broker:
    """A third of what it may hold is pending."""

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None: ...

    async def check(self) -> None: ...

    def pending(self) -> tuple[int, int]:
        return MOST // 3, MOST

    def weigh(self, message: Message) -> int:
        return len(message.data)


def test_what_has_been_published_does_not_count_as_waiting() -> None:
    """A client may send far more than its share in a moment, if the ingest sums and publishes it in that moment."""
    clock = ManualClock()
    shares = PendingShares(Broker(), list[Draft], clock.monotonic)
    for _ in range(100):
        shares.judge("a", MOST // 10)
        clock.turn(0.001)

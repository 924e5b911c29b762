"""The writing side of an overlay whose entries are a broker's messages: it has nothing to do."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final

from shared.model.buckets import Instant
from shared.model.envelope import Envelope


class KeptByBroker:
    """Does nothing: publishes add the entries, and acks settle them."""

    shared: Final = True
    crowded: Final = False
    kept_by_broker: Final = True

    def entered(self, envelopes: Sequence[Envelope]) -> AbstractAsyncContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def check(self) -> None:
        """Do nothing: the broker's own check is enough."""

    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        """Do nothing: the ack settles them."""

    async def mark(self, receipt: str, counters: Collection[str], epoch: str | None = None) -> str | None:  # noqa: ARG002
        """Do nothing: the commit itself raises the floors."""
        return None

    async def changed(self, counters: Collection[str], time: Instant, receipt: str = "") -> None:
        """Do nothing: the commit did it, so nobody sees the one without the other."""

    async def unsettled(self, limit: int) -> Mapping[str, str]:  # noqa: ARG002
        return {}

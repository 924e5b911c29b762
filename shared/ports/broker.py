"""What the core needs of a broker, and may rely on from every adapter."""

from collections.abc import Sequence
from typing import Protocol

from shared.model.words import Delivery, Letter, Message


class Publisher(Protocol):
    """Hands messages to the broker."""

    async def publish(self, messages: Sequence[Message]) -> None:
        """Return when all messages are durable.

        After an error any of them may have been published, at once or later, so a retry can publish twice.
        `OverloadedError`, `StorageFullError` and `UnkeptError`: none was, and none will be. `TooLargeError`: none was,
        and one of them never can be.
        """
        ...

    async def check(self) -> None:
        """Raise what a publish would raise now."""
        ...


class Subscription(Protocol):
    """Leases messages to flushers: at least once, in no promised order, to one holder at a time."""

    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        """Lease at least one message, waiting up to `wait` seconds; none if none came, or a little early.

        At most `limit` of them, and of `max_bytes` of data together unless the first alone is larger. A message whose
        lease ran out, or that was given back, is delivered again with a new token, and a higher `attempt` as far as
        the broker, or this object, knows of the earlier ones.
        """
        ...

    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        """Have these leases end `seconds` from now, 600 at most. A lease that was lost stays lost; that is no error."""
        ...

    async def ack(self, tokens: Sequence[str], floor: int) -> None:
        """Done: forget these messages. A lease that was lost stays lost, and its message will come again.

        `floor` is the store's time at which all of them are known to be applied; an overlay that lives in the broker
        drops their entries and raises the floor of their counters in the same step.
        """
        ...

    async def give_back(self, tokens: Sequence[str]) -> None:
        """End these leases now: the messages are delivered again at once."""
        ...

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Put the message among the dead letters with the reason, then forget it. Safe to do twice.

        What it carries stays pending for readers: it was accepted, and it is not applied.
        """
        ...


class DeadLetters(Protocol):
    """One way through what was buried. Where the broker has leases, it holds what it hands out; elsewhere another one
    may be handed the same. Receipts tell.
    """

    complete: bool
    """Whether what is found is all there is."""

    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        """Some that this object has not handed out yet; none if it finds no more. Limits as for a `Subscription`.

        A message that was buried twice may be two letters.
        """
        ...

    async def ack(self, tokens: Sequence[str], floor: int) -> None:
        """Forget these for good. Safe to do twice. `floor` and overlay as for a `Subscription`."""
        ...

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """It stays, with this reason. This object does not hand it out again."""
        ...

    async def close(self) -> None:
        """Give back what was handed out and is not forgotten: others find it at once."""
        ...

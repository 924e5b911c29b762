"""What the core may rely on from every broker, and the desk that reads, replays and drops dead letters."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from shared.model.buckets import Instant
from shared.model.dead_letters import LetterPage, LettersDropped, LettersReplayed, Place
from shared.model.words import Delivery, Letter, Message

Check = Callable[[], None]
"""Raises an error if something must not happen any more. Any thread may call it."""


def at_any_time() -> None:
    """The check of messages that may be published at any time."""


class Publisher(Protocol):
    """Hands messages to the broker."""

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        """Return when all messages are durable.

        `check` is called right before the messages take effect, and again before each retry: the process may have stood
        still meanwhile. If it raises an error, nothing more is published. That error is raised if none of the messages
        can have been published before.

        After an error any of them may have been published, at once or later, so a retry can publish twice.
        The exceptions are `OverloadedError`, `StorageFullError` and `UnkeptError`: no message was published, and none
        will be; and `TooLargeError`: no message was published, and one of them never can be.
        """
        ...

    async def check(self) -> None:
        """Raise the error that a publish would raise now."""
        ...


@runtime_checkable
class LimitedPublisher(Protocol):
    """A publisher to a broker that knows how much is pending in it, and its limit."""

    def pending(self) -> tuple[int, int]:
        """What is pending now, and the limit."""
        ...

    def weigh(self, message: Message) -> int:
        """How much a message adds to what is pending."""
        ...


class Subscription(Protocol):
    """Leases messages to flushers: each at least once, in no promised order, to one holder at a time."""

    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        """Lease messages, waiting up to `wait` seconds for the first. Returns none if none came, or a little early.

        There are at most `limit` messages, with at most `max_bytes` of data together unless the first alone is larger.
        A message that was given back, or whose lease ended, is delivered again with a new token. Its `attempt` rises
        with each delivery that the broker, or this object, knows of.
        """
        ...

    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        """Have these leases end `seconds` from now, 600 at most. Leases that were lost stay lost without an error."""
        ...

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        """Forget these messages. A message whose lease was lost is delivered again.

        `floor` is the store's instant at which all of them are known to be applied. If the broker holds the overlay, it
        removes their entries and raises the floors of their counters in the same step.
        """
        ...

    async def give_back(self, tokens: Sequence[str]) -> None:
        """End these leases now. The messages are delivered again at once."""
        ...

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Put the message among the dead letters with the reason, then forget it. Safe to do twice.

        Its increments stay pending for readers: they were accepted and are not applied.
        """
        ...


class DeadLetters(Protocol):
    """One pass through the dead letters. Where the broker has leases, what is handed out is leased. Elsewhere two
    passes may get the same letter; receipts tell what was done with it.
    """

    complete: bool
    """Whether a pass finds all dead letters."""

    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        """Letters that this object has not handed out yet; none if it finds no more. Limits as for a `Subscription`.

        A message that was buried twice may be two letters.
        """
        ...

    def continue_after(self, token: str) -> None:
        """Leave out the letter with this token, of an earlier pass, and those before it. Call it before the first pull.
        It has an effect only if passes are `complete`: there, letters have an order, and their tokens do not change.
        """
        ...

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        """Forget these letters for good. Safe to do twice. `floor` means what it does for a `Subscription`."""
        ...

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Keep the letter, with this reason. This object does not hand it out again."""
        ...

    async def close(self) -> None:
        """Give back the letters that were handed out and not forgotten, so that others find them at once."""
        ...


# The interface through which requests read, replay and drop dead letters.


class LetterDesk(Protocol):
    """What administrators do with dead letters. Each call may be interrupted anywhere, repeated, and made by several
    processes at once: receipts make each increment count once. `OverloadedError`: too many calls wait for their turn.
    """

    async def page(self, place: Place, limit: int) -> LetterPage:
        """At most `limit` dead letters from this place on. It changes nothing. A page may be short, or empty, and not
        be the last one.
        """
        ...

    async def replay(self, ids: Sequence[str] | None, *, too_old: bool) -> LettersReplayed:
        """Count the letters with these ids, or all letters for None. It ends after a few seconds; `more` says that the
        same call has to be made again. `TransientError`: the store is away; some may be counted, and none is lost.
        """
        ...

    async def drop(self, ids: Sequence[str]) -> LettersDropped:
        """Give these letters up for good. Reads exclude them when this returns."""
        ...

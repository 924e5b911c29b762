"""All errors of Countersink. The docstring says what an error means; adapters translate vendors' errors into these."""

from collections.abc import Collection, Sequence
from typing import Final

from shared.model.buckets import StoreMillis


def amount(number: int, one: str, many: str = "") -> str:
    """How a text says this number of something: "1 counter", "2 counters"."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {many or one + 's'}"


def why_not_made(error: OSError, folder: object) -> str:
    """Why a file could not be made in the folder."""
    if isinstance(error, FileNotFoundError):
        return f"the folder {folder} does not exist: make it first"
    return error.strerror or str(error)


class CountersinkError(Exception):
    """The base of all errors of Countersink."""


class SettingsError(CountersinkError):
    """A setting or an argument is wrong. The message names it and says what is allowed."""


class UnreadableError(CountersinkError):
    """A message can't be decoded; the error says why. It becomes a dead letter."""


class NewerError(CountersinkError):
    """A message or task was written by a newer version of Countersink. Leave it to newer processes: neither count nor
    bury it.
    """


class TransientError(CountersinkError):
    """The call failed, may have happened all the same, and may work later. Retry it with the same ids."""


class ContendedError(TransientError):
    """Another request changed the same entities first. This one was most probably not applied."""


class OverloadedError(TransientError):
    """A limit is reached and nothing was accepted. Retry after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ShareError(OverloadedError):
    """One tenant or counter would use more than its share. Nothing was accepted; others are still served."""

    counters: Sequence[str] = ()
    """The new counters for which there is no room, if that is why."""


class StorageFullError(TransientError):
    """The disk is full and nothing was accepted. Free some space; nothing that was accepted is lost."""


class DoubtfulError(TransientError):
    """A limit was reached after something may have been accepted. Retry with the same ids when the limit allows it."""

    def __init__(self, limit: CountersinkError) -> None:
        super().__init__(f"{limit}; the request may still have been accepted: send it again with the same id")
        self.limit = limit


class BrokerRejectedError(TransientError):
    """The broker refuses these messages for now. The cause may be one of them, or something that will be repaired."""


class UnkeptError(TransientError):
    """Nobody would keep what is published now, so nothing was sent. It works again once the set-up is repaired."""


class TooLargeError(CountersinkError):
    """A message is larger than the broker's limit. Nothing was sent, and it will never fit."""


class DamagedError(CountersinkError):
    """Stored data can't be read any more. Restore a backup."""


class LostFileError(DamagedError):
    """A data file is gone, or was replaced by another one. The message says what to do."""


class RefusedError(CountersinkError):
    """The store refuses this commit as invalid and will refuse it again. Nothing was applied."""


class AlreadyAppliedError(CountersinkError):
    """A receipt of the commit exists already, so nothing was applied. Look the receipts up and commit the rest."""


class LateError(CountersinkError):
    """The commit might have happened after its time limit, so nothing was applied. Check the ages again."""

    def __init__(self, reached: StoreMillis) -> None:
        super().__init__(f"the commit might happen as late as {reached} ms by the store's clock, after its time limit")
        self.reached = reached


class StoodStillError(TransientError):
    """The process was suspended for too long to publish what it holds. Nothing was published."""


class GoneError(CountersinkError):
    """Another process has settled these messages; they are not in the file any more. Nothing was applied."""

    def __init__(self, messages: Collection[str]) -> None:
        super().__init__(f"settled by another process: messages {sorted(messages)}")
        self.messages = messages


class InexactError(TransientError):
    """An exact reading is required, and the counter can't be read exactly now."""


class ChangedError(CountersinkError):
    """A counter was set, or imported from the same source, since it was read, or the fleet has named another overlay.
    Nothing was applied.
    """


class ShrunkError(CountersinkError):
    """These counters have fewer shards than the commit expects. Nothing was applied. Read their numbers again."""

    def __init__(self, counters: Collection[str]) -> None:
        super().__init__(f"compacted meanwhile: {sorted(counters)}")
        self.counters = counters


class CrowdedError(CountersinkError):
    """So few shards could not hold the value. Nothing was changed."""


class UnrankedError(CountersinkError):
    """Finding the largest counters would take too much work. The message says what to do."""


class NotAloneError(CountersinkError):
    """Another application writes to the same shards and would not notice the change. Nothing was changed."""


class ShardFullError(CountersinkError):
    """These (counter, shard) might overflow. Nothing was applied. Use other shards."""

    def __init__(self, shards: Collection[tuple[str, int]]) -> None:
        super().__init__(f"full: {sorted(shards)}")
        self.shards = shards


BROKEN: Final = (DamagedError, StoodStillError, SettingsError, OSError, MemoryError)
"""Errors that say that the process itself, its files or its settings are broken. They always end the process, whatever
it was working on. Any other unforeseen error is a bug that concerns one job or message; others need not suffer from it.
"""


def said_of_bug(error: Exception) -> str:
    """What people are told of an unforeseen error; the log has its traceback."""
    return f"a bug in Countersink ({error!r:.500}); the log has its traceback"

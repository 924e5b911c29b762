"""Every error of ours. The docstring of each is what it means; adapters translate vendors' errors into these."""

from collections.abc import Collection


class CountersinkError(Exception):
    """Something went wrong that has a name."""


class SettingsError(CountersinkError):
    """A setting or an argument is wrong; the message names it and says what would be right."""


class UnreadableError(CountersinkError):
    """A message can't be decoded; the message says why. It belongs with the dead letters."""


class NewerError(CountersinkError):
    """A message or a task of a version of Countersink that this process does not know. It must be left to newer ones:
    neither counted nor buried.
    """


class TransientError(CountersinkError):
    """It may work later, and may even have happened. Try again with the same ids."""


class ContendedError(TransientError):
    """Another request was first at the same entities; this one was most probably not applied."""


class OverloadedError(TransientError):
    """A limit is reached and nothing was taken. Come back after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ShareError(OverloadedError):
    """One tenant, or one counter, would hold more than its share; nothing was taken, and others are served."""


class StorageFullError(TransientError):
    """The disk is full and nothing was taken. Free some space; nothing accepted is lost."""


class DoubtfulError(TransientError):
    """A limit was met after something may have been taken. Come back when the limit says, with the same ids."""

    def __init__(self, limit: CountersinkError) -> None:
        super().__init__(f"{limit}; what was sent may have been taken all the same: send it again with the same id")
        self.limit = limit


class BrokerRejectedError(TransientError):
    """The broker refuses these messages as things are now. One of them may be to blame, or what somebody will mend."""


class UnkeptError(TransientError):
    """Nobody would keep what is published now, so nothing was sent. It works as soon as somebody has mended that."""


class TooLargeError(CountersinkError):
    """A message is larger than the broker ever takes; nothing was sent, and it will never fit."""


class DamagedError(CountersinkError):
    """What is stored can't be read any more. Only a backup helps."""


class LostFileError(DamagedError):
    """A data file that was there before is gone, or another stands in its place; the message says what to do."""


class RefusedError(CountersinkError):
    """The store refuses this commit as invalid and will refuse it again; nothing of it was applied."""


class AlreadyAppliedError(CountersinkError):
    """A receipt of the commit exists; nothing was applied. Look the receipts up and commit what is left."""


class LateError(CountersinkError):
    """The commit might happen after the time up to which it is allowed; nothing was applied. Judge its ages again."""

    def __init__(self, reached: int) -> None:
        super().__init__(f"the commit may happen as late as {reached} ms by the store's time, which is too late for it")
        self.reached = reached
        """The store's time (ms) by which the commit might happen."""


class StoodStillError(TransientError):
    """The process stood still for too long to publish what it holds. Nothing was published."""


class GoneError(CountersinkError):
    """These messages are not in the file any more: another process has settled them. Nothing was applied."""

    def __init__(self, messages: Collection[str]) -> None:
        super().__init__(f"settled by another process: messages {sorted(messages)}")
        self.messages = messages


class InexactError(TransientError):
    """Nobody knows just what a counter is now, and nothing less will do."""


class ChangedError(CountersinkError):
    """Somebody else has set a counter, or added to it from the same source, since it was read; nothing was applied."""


class ShrunkError(CountersinkError):
    """These counters have fewer shards than the commit says; nothing was applied. Ask for their numbers again."""

    def __init__(self, counters: Collection[str]) -> None:
        super().__init__(f"compacted meanwhile: {sorted(counters)}")
        self.counters = counters


class CrowdedError(CountersinkError):
    """Fewer shards could not hold what there is; nothing was changed."""


class NotAloneError(CountersinkError):
    """Another application writes to the same shards, and does not see what this would change; nothing was changed."""


class ShardFullError(CountersinkError):
    """These (counter, shard) hold so much that another sum might overflow them; nothing was applied. Use others."""

    def __init__(self, shards: Collection[tuple[str, int]]) -> None:
        super().__init__(f"full: {sorted(shards)}")
        self.shards = shards

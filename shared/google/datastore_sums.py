"""The adds of a commit put together, since no key may stand twice in a request. Pure."""

from typing import Final

from shared.errors import AlreadyAppliedError, RefusedError
from shared.google.datastore_shards import Shard
from shared.words import Commit

_END: Final = 2**63 - 1


class Sums:
    """One sum for each shard, and the number of shards that each counter must have at least."""

    def __init__(self, commit: Commit) -> None:
        if commit.repeats():
            raise AlreadyAppliedError("a receipt stands twice in this commit")
        self.shards: dict[Shard, int] = {}
        self.numbers: dict[str, int] = {}
        for counter, index, delta, num_shards in commit.adds:
            shard = (counter, index)
            self.shards[shard] = self.shards.get(shard, 0) + delta
            self.numbers[counter] = max(self.numbers.get(counter, 0), num_shards, index + 1)
        if any(abs(delta) > _END for delta in self.shards.values()):
            raise RefusedError("a sum does not fit into 64 bits")

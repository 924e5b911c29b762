"""Drops dead letters for good: one commit, and readers no longer count them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shared.model.envelope import Envelope
from shared.model.errors import AlreadyAppliedError, ChangedError, LateError, TransientError
from shared.model.promises import Promise, Promises
from shared.model.receipts import key_of_drop
from shared.model.times import StoreMillis
from shared.model.words import DEAD, DROPPED, MARKED, Bounds, Commit, Receipt, Receipts
from shared.ports.commits import Commits
from shared.ports.overlay import Overlay
from shared.runtime.ids import mint

TRIES: Final = 10
"""Attempts. One fails only if a replay or another drop was faster."""


async def drop(store: Commits, overlay: Overlay, envelopes: Sequence[Envelope], ours: Promise) -> Receipts:
    """Drop the envelopes. Those that are applied stay applied.

    Returns the receipts that existed before, of the envelopes and the ids in them, and the time from which on reads
    exclude what was dropped. No reading shows that before the floors of the counters have risen.
    """
    keys = [*dict.fromkeys(key for envelope in envelopes for key in envelope.receipt_keys())]
    counters = tuple(sorted({name for envelope in envelopes for name in envelope.counters()}))
    promises, own = Promises(ours, await store.promises()), key_of_drop(mint())
    for _ in range(TRIES):
        found = await store.receipts(keys)
        now, time = await store.now(), found.time
        commit = _commit(envelopes, found, now, promises)
        if commit.receipts or commit.revived:
            receipts = (*commit.receipts, Receipt(own, promises.expires(now, of_client=False)))
            bounds = Bounds(StoreMillis(now + MARKED), epoch=await overlay.mark(own, counters))
            try:
                commit = replace(commit, receipts=receipts, changes=counters, bounds=bounds)
                time = max(time, await store.apply(commit))
            except (AlreadyAppliedError, ChangedError):
                continue
            except LateError as error:
                raise TransientError("this process was suspended during the drop: run the drop again") from error
        await overlay.settle([envelope.key for envelope in envelopes], time)
        await overlay.changed(counters, time, own)
        return Receipts(time, found.found)
    raise TransientError("other commands are changing the same receipts: run the drop again")


def _commit(envelopes: Sequence[Envelope], found: Receipts, now: StoreMillis, promises: Promises) -> Commit:
    made = [Receipt(one.key, promises.expires(now, of_client=one.retried), DROPPED) for one in envelopes]
    new = tuple([one for one in made if one.key not in found.found])
    revived = tuple([one for one in made if one.key in found.found and found.found[one.key].state == DEAD])
    return Commit(new, (), revived)

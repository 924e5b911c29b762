"""Drops dead letters for good: one commit, and readers no longer count them."""

from collections.abc import Sequence
from typing import Final

from shared.model.envelope import Envelope
from shared.model.errors import AlreadyAppliedError, TransientError
from shared.model.promises import Promise, Promises
from shared.model.times import StoreMillis
from shared.model.words import DEAD, DROPPED, Commit, Receipt, Receipts
from shared.ports.commits import Commits
from shared.ports.overlay import Overlay

TRIES: Final = 10
"""Attempts. One fails only if a replay or another drop was faster."""


async def drop(store: Commits, overlay: Overlay, envelopes: Sequence[Envelope], ours: Promise) -> Receipts:
    """Drop the envelopes. Those that are applied stay applied.

    Returns the receipts that existed before, of the envelopes and the ids in them, and the time from which on reads
    exclude what was dropped. The floors of the counters rise after the commit, which voids every older cached read.
    """
    keys = [*dict.fromkeys(key for envelope in envelopes for key in envelope.receipt_keys())]
    promises = Promises(ours, await store.promises())
    for _ in range(TRIES):
        found = await store.receipts(keys)
        commit = _commit(envelopes, found, await store.now(), promises)
        try:
            time = await store.apply(commit) if commit.receipts or commit.revived else found.time
        except AlreadyAppliedError:
            continue
        time = max(time, found.time)
        await overlay.settle([envelope.key for envelope in envelopes], time)
        for counter in _counters(envelopes):
            await overlay.raise_floor(counter, time)
        return Receipts(time, found.found)
    raise TransientError("others are changing the same receipts: run the drop again")


def _counters(envelopes: Sequence[Envelope]) -> tuple[str, ...]:
    return tuple(sorted({name for envelope in envelopes for name in envelope.counters()}))


def _commit(envelopes: Sequence[Envelope], found: Receipts, now: StoreMillis, promises: Promises) -> Commit:
    made = [Receipt(one.key, promises.expires(now, of_client=one.retried), DROPPED) for one in envelopes]
    new = tuple([one for one in made if one.key not in found.found])
    revived = tuple([one for one in made if one.key in found.found and found.found[one.key].state == DEAD])
    return Commit(new, (), revived, changes=_counters(envelopes))

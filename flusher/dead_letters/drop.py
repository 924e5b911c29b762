"""Gives up for good what is dead: one commit, and then no reader counts it any more."""

from collections.abc import Sequence
from typing import Final

from shared.model.envelope import Part
from shared.model.errors import AlreadyAppliedError, TransientError
from shared.model.promises import Promise, Promises
from shared.model.words import DEAD, DROPPED, Commit, Receipt, Receipts
from shared.ports.overlay import Overlay
from shared.ports.store import Store

TRIES: Final = 10
"""Each fails only if a replay, or another drop, was faster."""


async def drop(store: Store, overlay: Overlay, parts: Sequence[Part], ours: Promise) -> Receipts:
    """The receipts that were there before, of the parts and the ids in them; and a time from which on readings leave
    out what was dropped. Parts that are applied stay so.

    The commit comes first; then the floors of the counters rise to it, which ends every cached reading from before.
    """
    keys = [*dict.fromkeys(key for part in parts for key in (part.key, *(key for key, _ in part.keyed)))]
    promises = Promises(ours, await store.promises())
    for _ in range(TRIES):
        found = await store.receipts(keys)
        commit = _commit(parts, found, await store.now(), promises)
        try:
            time = await store.apply(commit) if commit.receipts or commit.revived else found.time
        except AlreadyAppliedError:
            continue
        time = max(time, found.time)
        await overlay.settle([part.key for part in parts], time)
        for counter in sorted({name for part in parts for name in part.counters()}):
            await overlay.raise_floor(counter, time)
        return Receipts(time, found.found)
    raise TransientError("others change these receipts all the time: drop them again later")


def _commit(parts: Sequence[Part], found: Receipts, now: int, promises: Promises) -> Commit:
    made = [Receipt(part.key, promises.expires(now, of_client=part.retried), DROPPED) for part in parts]
    new = tuple([one for one in made if one.key not in found.found])
    revived = tuple([one for one in made if one.key in found.found and found.found[one.key].state == DEAD])
    return Commit(new, (), revived)

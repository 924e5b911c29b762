"""Services that break a promise all the time, or now and then. `countersink check` has to notice each."""

import itertools
import os
from dataclasses import replace
from typing import Any, Final

from tests.mutations.mutation import around, mutation

CHECK: Final = "tests/processes/test_check.py"
_HOW: Final = (CHECK, "-k", "sound")
SOMETIMES: Final = 4
"""One of so many times."""
_calls = itertools.count(1)


def _now() -> bool:
    return next(_calls) % SOMETIMES == 0


@around("a service loses a message now and then", "shared.sqlite.broker.SqlitePublisher.publish", *_HOW)
async def _(publish: Any, self: Any, messages: Any, *rest: Any) -> None:
    if not _now():
        await publish(self, messages, *rest)


@around("a service loses a commit now and then", "shared.sqlite.store.SqliteStore.apply", *_HOW)
async def _(apply: Any, self: Any, commit: Any) -> Any:
    return await apply(self, replace(commit, adds=commit.adds[:-1]) if _now() else commit)


@around("a service adds one too many now and then", "shared.sqlite.store.SqliteStore.apply", *_HOW)
async def _(apply: Any, self: Any, commit: Any) -> Any:
    adds = tuple(add._replace(delta=add.delta + _now()) for add in commit.adds)
    return await apply(self, replace(commit, adds=adds))


mutation("a service knows no ids", "shared.model.receipts.key_of_increment", *_HOW)(
    lambda key_of: lambda counter, client_id: key_of(counter, client_id + os.urandom(8).hex())
)

mutation("a service knows no idempotency keys", "ingest.access.callers.batch_id", *_HOW)(
    lambda batch_id: lambda owner, key: batch_id(owner, key + os.urandom(8).hex())
)

mutation("a service reads only what is stored", "shared.counters.pending.pending", *_HOW)(
    lambda pending: lambda base, view, *each: None if pending(base, view, *each) is None else 0
)

mutation("a service reads what is pending twice", "shared.counters.pending.pending", *_HOW)(
    lambda pending: lambda base, view, *each: None if (found := pending(base, view, *each)) is None else 2 * found
)


@around("a service shows what was true a while ago", "shared.counters.reader.Reader.read", *_HOW)
async def _(read: Any, self: Any, counters: Any, max_age: Any = None) -> Any:
    kept = self.__dict__.setdefault("_kept", {})
    for reading in await read(self, [name for name in counters if name not in kept or _now()], max_age):
        kept[reading.name] = reading
    return [kept[name] for name in counters]

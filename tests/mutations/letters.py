"""Mutations of dead letters: how they are buried, replayed, dropped and forgotten."""

from math import inf
from typing import Any

from tests.mutations.mutation import Instead, around, instead, mutation, returning, returning_later
from tests.mutations.places import DEAD, FLUSH_AND_REPLAY, LETTERS_OVER_HTTP, SEEDS, STORE


@around("a dead letter is forgotten before the commit", "flusher.flush.commit_loop.Flush.run", *FLUSH_AND_REPLAY)
async def _(run: Any, self: Any, longest: float = inf) -> None:
    if self._letters is not None:
        await self._letters.ack([held.delivery.token for held in self.window.held], 0)
    await run(self, longest)


@around("a dead letter's entry goes without a floor", "flusher.flush.commit_loop.Flush._settle_entries", DEAD)
async def _(settle_entries: Any, self: Any, keys: Any) -> None:
    floor, self._floor = self._floor, 0
    await settle_entries(self, keys)
    self._floor = floor


@around("what is dropped leaves the floors where they were", "flusher.dead_letters.desk.drop", DEAD)
async def _(drop: Any, store: Any, overlay: Any, parts: Any, ours: Any) -> Any:
    return await drop(store, Instead(overlay, changed=returning_later()(None)), parts, ours)


mutation(
    "what may be applied already is replayed",
    "flusher.flush.window.Window._proved",
    *FLUSH_AND_REPLAY,
)(returning(True))


@around(
    "a dead receipt without a body proves that nothing was applied",
    "flusher.flush.window.Window._proved",
    *FLUSH_AND_REPLAY,
)
def _(proved: Any, self: Any, left: Any) -> Any:
    return proved(self, left) or left.key in self.dead


@around("a forgotten letter leaves the floor where it was", "shared.sqlite.broker.SqliteDeadLetters.ack", STORE)
async def _(ack: Any, self: Any, tokens: Any, _: int) -> None:
    await ack(self, tokens, 0)


mutation(
    "a receipt that is revived stands for another use of its id than before",
    "shared.model.words.Envelope.in_place_of",
    "tests/unit/model/test_words.py",
)(lambda in_place_of: lambda self, _, increments: in_place_of(self, "", increments))

mutation("a receipt that is revived goes on to call its increments dead", "shared.model.receipts.SILENT", SEEDS)(
    instead(b"")
)

mutation(
    "keys with prefixes may see, replay and drop dead letters", "ingest.api.dead_letters._check", LETTERS_OVER_HTTP
)(returning(None))

mutation(
    "a list of dead letters shows those twice that the store and the broker have",
    "flusher.dead_letters.letters.OpenedLetter.is_in_store",
    LETTERS_OVER_HTTP,
)(returning(False))

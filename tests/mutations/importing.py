"""Mutations of imports."""

import contextlib
from dataclasses import replace
from typing import Any

from shared.model.errors import AlreadyAppliedError, ChangedError, ShrunkError
from shared.model.receipts import Tally, notes_of_commit, read_note
from shared.model.words import Commit
from tests.mutations.mutation import Instead, altered, around, mutation, returning_later
from tests.mutations.places import IMPORTER, IMPORTS


@around("the mark of an import outside of its commit", "countersink_server.move.importer.Importer._apply", IMPORTS)
async def _(apply: Any, self: Any, commit: Any) -> Any:
    done = await apply(self, replace(commit, marks=()))
    with contextlib.suppress(ChangedError):
        await self._insist(lambda: self.store.apply(Commit((), (), marks=commit.marks)))
    return done


@around("an import adds to what it saw before the others", "tests.world.memory.store.MemoryStore.apply", IMPORTS)
async def _(apply: Any, self: Any, commit: Any) -> Any:
    there = {mark: self._marks.get(mark[:2], 0) for mark in commit.marks}
    marks = tuple(mark._replace(seen=now if now <= mark.total else mark.seen) for mark, now in there.items())
    return await apply(self, replace(commit, marks=marks))


def _after_a_failure(answer: bool) -> Any:
    async def mutant(self: Any, commit: Any) -> bool:
        try:
            await self._insist(lambda: self.store.apply(commit))
        except (AlreadyAppliedError, ChangedError, ShrunkError):
            return answer
        return True

    return lambda _: mutant


mutation("each try of an import is a commit of its own", "countersink_server.move.importer.Importer._apply", IMPORTER)(
    _after_a_failure(answer=False)
)

mutation("an import takes what another did for its own", "countersink_server.move.importer.Importer._apply", IMPORTER)(
    _after_a_failure(answer=True)
)


@around("the receipt of an import says totals", "countersink_server.move.importer.Importer._commit", IMPORTER, IMPORTS)
async def _(commit: Any, self: Any, todo: Any, full: Any) -> Any:
    made = await commit(self, todo, full)
    (receipt,) = made.receipts
    totals = {mark.counter: mark.total for mark in todo}
    (note,) = notes_of_commit([""], read_note(receipt.note).commit, Tally(), totals)
    return replace(made, receipts=(receipt._replace(note=note),))


@around("an import follows a counter down", "countersink_server.move.importer.Importer._again", IMPORTER)
async def _(again: Any, self: Any, name: str, mark: int) -> Any:
    return await again(altered(self, options=replace(self.options, shrink=True)), name, mark)


@around(
    "what another import saw later is taken for a loss",
    "countersink_server.move.importer.Importer._again",
    IMPORTER,
)
async def _(again: Any, self: Any, name: str, mark: int) -> Any:
    source = Instead(self.source, counter=returning_later()(None))
    return await again(altered(self, source=source), name, mark)

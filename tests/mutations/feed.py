"""Mutations of what is told to others."""

from dataclasses import replace
from typing import Any

from tests.mutations.mutation import around, mutation, replaced, text

MONTH = "tests/unit/feed/test_month.py"
BOOK = "tests/unit/feed/test_book.py"
FEED = "shared.sqlite.feed."
BACK = "shared.datastore.thresholds."
COUNTING_BACK = "tests/unit/feed/test_counting_back.py"
THRESHOLDS = "tests/emulators/test_thresholds.py"


@around("what a receiver did not take counts as told", "flusher.announcer.Announcer._settle", MONTH)
async def _(settle: Any, self: Any, owed: Any, events: Any, whys: Any) -> None:
    await settle(self, owed, events, [""] * len(whys))


mutation("what changed since the reading is not owed any more", FEED + "_SETTLE", BOOK)(
    text("CASE WHEN changed <= ? THEN 0 ELSE changed END", "0 * ?")
)

mutation("a counter that fell reaches its threshold again", FEED + "_HEIGHTS", MONTH)(
    text("generation, height", "generation, 0")
)

mutation("a set owes nothing", FEED + "enter", MONTH)(
    lambda enter: lambda db, commit, *when: None if commit.guard else enter(db, commit, *when)
)

mutation("a restored file repeats its times", FEED + "SqliteFeedBook._noted", BOOK)(lambda _: lambda self: 0)


@replaced(
    "what is owed in Datastore goes though another commit has written it",
    "shared.datastore.feed.DatastoreFeedBook.settle",
    "tests/emulators/test_feed.py",
)
async def _(self: Any, changes: Any, _: Any) -> None:
    request = self._client.commit_request()
    for change, _ in changes:
        for one in self._read[change.counter]:
            request.mutations.add().delete.CopyFrom(one.entity.key)
    await self._client.commit(request)


mutation("a set does not tell which generation it ended", BACK + "steps", COUNTING_BACK)(
    lambda steps: lambda total, rows: steps(total, [(delta, ()) for delta, _ in rows])
)

mutation("new rules are covered since the rules before", BACK + "covered", COUNTING_BACK)(
    lambda _: lambda before, rules: {rule.prefix: min(before.values(), default=0) for rule in rules}
)

mutation("thresholds hold while commits follow other rules", BACK + "holds", COUNTING_BACK, THRESHOLDS)(
    lambda _: lambda *_: True
)


@around("a commit that falls writes no row", BACK + "note", THRESHOLDS)
def _(note: Any, request: Any, place: Any, commit: Any, *more: Any) -> None:
    note(request, place, replace(commit, adds=tuple(add for add in commit.adds if add.delta > 0)), *more)


mutation("the last commit counts as the first", BACK + "steps", COUNTING_BACK)(
    lambda steps: lambda total, rows: steps(total, rows[::-1])[::-1]
)

mutation("the newest rows go first", BACK + "Judge._keep", THRESHOLDS)(
    lambda keep: lambda self, reached, guards: keep(self, reached[::-1], guards)
)

mutation("what was reached goes though it was not told", "shared.datastore.feed.DatastoreFeedBook.settle", THRESHOLDS)(
    lambda settle: lambda self, changes, reaches: settle(self, changes, [(one, one.levels.last) for one, _ in reaches])
)

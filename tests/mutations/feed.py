"""Mutations of what is told to others."""

from typing import Any

from tests.mutations.mutation import around, mutation, replaced, text

MONTH = "tests/unit/feed/test_month.py"
BOOK = "tests/unit/feed/test_book.py"
FEED = "shared.sqlite.feed."


@around("what a receiver did not take counts as told", "flusher.feed.announcer.Announcer._settle", MONTH)
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

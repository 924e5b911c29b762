"""Mutations of the overlay in Redis: its scripts, and the member that writes to it."""

from collections.abc import Iterator
from typing import Any

from shared.fleet import JOINED, OWES
from shared.redis.scripts import WITHDRAW
from tests.mutations.mutation import Instead, around, calling, mutation, replaced, returning, returning_later, text
from tests.mutations.places import AGES, FENCES, FLEET

_OF_ENTRIES = ("WRITE", "WITHDRAW", "SETTLE", "RAISE", "FORGET", "VIEW", "UNDER", "HOLDS", "UNSETTLED", "GONE")
_SCRIPTS = (
    *(f"shared.redis.scripts.{name}" for name in _OF_ENTRIES),
    *(f"shared.redis.scripts.{name}" for name in ("HEARD", "FENCE")),
)
"""All that only the server answers which the fleet has named."""

mutation("any master that holds the epoch is the overlay", _SCRIPTS, FLEET)(text(" or identity ~= ARGV[1]", ""))
mutation("a server that lost the epoch is the overlay", _SCRIPTS, FLEET)(
    text(" or redis.call('EXISTS', EPOCH) == 0 then return {'bad'}", " then return {'bad'}")
)
mutation("the floor of all counters is not raised by those that are forgotten", "shared.redis.scripts.FORGET", FENCES)(
    text("  if less(floor, own) then", "  if false then")
)
mutation(
    "the largest are sought by a floor that some counters are above",
    "shared.redis.scripts.UNDER",
    "tests/emulators/test_redis_contract.py",
)(text("EPOCH, 'top'", "EPOCH, 'floor'"))

mutation(
    "what could not be announced keeps the name that readings were told",
    "shared.redis.own_entries.PublishTry.rename",
    FENCES,
    "-k",
    "announced",
)(returning(None))


@around(
    "what was published is withdrawn when its request fails",
    "shared.redis.member.Member.confirm",
    FENCES,
    "-k",
    "though_its_request_fails",
)
async def _(confirm: Any, self: Any, tries: Any) -> None:
    try:
        await confirm(self, tries)
    except BaseException:
        for publish_try in tries:
            await self._server.ask(WITHDRAW, self.overlay, *publish_try.place())
        raise


mutation(
    "a member answers in an epoch that it has not joined",
    "shared.redis.member.Member._may_answer",
    FENCES,
    "-k",
    "between_two_epochs",
)(lambda _: lambda self: self.membership.state in {JOINED, OWES})

mutation("a member that comes back leaves out what it has answered", "shared.redis.own_entries.Copy.confirmed", FLEET)(
    lambda _: lambda _: []
)

mutation(
    "a base of before a change of the fleet is believed",
    "shared.redis.overlay.RedisOverlay._shown",
    FENCES,
    "-k",
    "until_somebody_says_otherwise",
)(calling(max=lambda floor, _: floor))


@replaced(
    "a member that was fenced answers under the record that may go", "shared.redis.member.Member._unfence", FENCES
)
async def _(self: Any, overlay: Any) -> None:
    await self._write(overlay, (), confirmed=True, again=True)
    self._fenced = False


mutation(
    "rows of a spool are not entered before the file is taken over",
    "shared.redis.member.Member._entered_rows",
    FENCES,
    "-k",
    "taken_over",
)(returning_later(True))


@around("a row of a spool is as young as the process that enters it", "shared.redis.member.Member._entered_rows", AGES)
async def _(entered_rows: Any, self: Any, rows: Any) -> Any:
    async def read() -> Any:
        async for envelope, _ in rows.read():
            yield envelope, self._looks.now()

    return await entered_rows(self, Instead(rows, read=read))


mutation("an entry whose receipt may be gone is as good as any", "shared.redis.overlay.Views.answer", AGES)(
    lambda answer: lambda self, question, hashes, of, unsure=(): answer(self, question, hashes, of)
)


class _SecondTime(list[Any]):
    """Empty when it is gone through for the first time."""

    seen = False

    def __iter__(self) -> Iterator[Any]:
        first, self.seen = not self.seen, True
        return iter(()) if first else super().__iter__()


@mutation(
    "what others have seen confirmed is left out of the next epoch",
    "shared.redis.member.Member.confirm",
    FENCES,
    "-k",
    "next_epoch",
)
def _(confirm: Any) -> Any:
    """Its first loop marks what it is given as confirmed."""

    async def mutant(self: Any, tries: Any) -> None:
        await confirm(self, _SecondTime(tries))

    return mutant

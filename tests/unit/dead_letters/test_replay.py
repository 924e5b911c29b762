"""A replay counts each increment once; a letter that can't be counted stays, with the reason."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from flusher.dead_letters.desk import Replay, ReplayOutcome, drop
from flusher.dead_letters.letters import OpenedLetter, open_letter, open_receipt
from flusher.flush.commit_loop import LEFT_AS_UNSURE, STOOD_STILL, FlushTools
from flusher.flush.window import TOO_OLD
from shared.model.buckets import DAY, HOUR, Instant, Millis, StoreMillis
from shared.model.dead_letters import read_body
from shared.model.errors import GoneError, RefusedError, TransientError
from shared.model.receipts import Promise, key_of_envelope, key_of_increment, promised
from shared.model.words import DEAD, PART_ENTRIES, Commit, Delivery, Envelope, Increment, Letter, Message, Receipt
from tests.world.flushing import PROMISE, Bench, Gate, tools_of
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryOverlay
from tests.world.memory.letters import MemoryDeadLetters
from tests.world.memory.store import MemoryStore


class Moody(MemoryStore):
    """Refuses some counters, for as long as they are named here; and may be away."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.refused = {"poison"}
        self.reason = "poison"
        self.away = False

    async def apply(self, commit: Commit) -> Instant:
        if self.away:
            raise TransientError("away")
        if any(add.counter in self.refused for add in commit.adds):
            raise RefusedError(self.reason)
        return await super().apply(commit)


class Morgue(Bench):
    """A flusher, and replays of what it buries."""

    store: Moody

    def __init__(self, *, ages: bool = False) -> None:
        super().__init__(Moody, ages=ages)
        self._ages = ages
        self.letters = MemoryDeadLetters(self.broker)

    def tools(self, store: Any, promise: Promise = PROMISE, *, one_file: bool = False) -> FlushTools:
        """Of another process."""
        overlay = MemoryOverlay(self.broker)
        return tools_of(store, self.broker, overlay, self.clock, promise=promise, one_file=one_file)

    def cured(self) -> None:
        self.store.refused = set()

    async def bury(self, reason: str) -> Delivery:
        """The message that waits, as a flusher would that gives it up and is killed before it writes a receipt."""
        (held,) = await self.broker.pull(1, 10**9, 0)
        await self.broker.bury(held, reason)
        return held

    async def opened(self, kept: str = "letter") -> list[OpenedLetter]:
        """Of what is dead, the letters that the broker has, or the receipts of the store."""
        if kept == "receipt":
            return [open_receipt(one) for one in await self.store.dead("", 10)]
        self.letters = MemoryDeadLetters(self.broker)  # of another process, which may get all of them
        return [open_letter(letter, "t") for letter in await self.letters.pull(1_000, 10**9)]

    async def replay(
        self, opened: Sequence[OpenedLetter] | None = None, *, too_old: bool = False
    ) -> list[ReplayOutcome]:
        """All letters, if it is not said which."""
        opened = await self.opened() if opened is None else opened
        return await Replay(self.flusher._tools, self.letters, too_old=too_old).run(opened, 0.0)

    async def two_uses(self) -> tuple[Envelope, Envelope]:
        """Of one id, both given up."""
        first, second = (
            Envelope("k", {"poison": 1}, {}, (), self.now(), retried=True, attempt=attempt) for attempt in ("t1", "t2")
        )
        await self.flush(first)
        await self.flush(second)
        return first, second

    async def one_letter(self) -> list[OpenedLetter]:
        """Of an envelope that the store would take by now."""
        await self.flush(Envelope("e", {"poison": 1}, {}, (), self.now()))
        self.cured()
        self.clock.turn(DAY / 1_000)
        return await self.opened()

    async def lived_on_without_it(self, days: float = 30) -> None:
        """Its letter is counted. Once the receipt has expired, a broker that is no file delivers it again, since an ack
        was lost.
        """
        published = self.now()
        assert sums(await self.replay()) == (1, 0, 0)
        self.clock.turn(days * DAY / 1_000)
        if not await self.store.sweep(StoreMillis(self.now()), 100) or not self._ages:
            return
        await self.published_ago("e", self.now() - published)
        await self.flush()
        assert (await self.found(key_of_envelope("e"))).state == DEAD

    async def counted_long_ago_and_given_up_again(self) -> list[OpenedLetter]:
        """The letter that was counted, of which another subscription has a copy."""
        letters = await self.one_letter()
        await self.lived_on_without_it()
        return letters

    async def receipt(self, key: str) -> Receipt | None:
        return (await self.store.receipts([key])).found.get(key)

    async def found(self, key: str) -> Receipt:
        """The receipt, which must be there."""
        return (await self.store.receipts([key])).found[key]

    def now(self) -> int:
        return int(self.clock.now() * 1_000)


def sums(outcomes: Sequence[ReplayOutcome]) -> tuple[int, int, int]:
    return tuple(sum(getattr(one, name) for one in outcomes) for name in ("counted", "already", "left"))


def _divided(created: int) -> Envelope:
    """Of two parts, of which one is refused."""
    return Envelope("large", {f"n{number:04}": 1 for number in range(PART_ENTRIES)} | {"poison": 1}, {}, (), created)


POISON = Envelope("p", {"poison": 5, "a": 2}, {"poison": 3}, (Increment("a", 10, "x"),), 1)


async def test_what_was_refused_counts_once_when_its_reason_is_gone() -> None:
    morgue = Morgue()
    await morgue.flush(POISON, Envelope("e", {"a": 1}))
    assert await morgue.total() == 1
    dead = await morgue.found(key_of_envelope("p"))
    morgue.clock.turn(1_000)
    morgue.cured()
    assert sums(await morgue.replay()) == (5, 0, 0)
    assert (await morgue.total(), await morgue.total("poison")) == (13, 5)
    assert morgue.broker.buried() == {}
    assert not morgue.broker.pending.names("")
    applied = await morgue.found(key_of_envelope("p"))
    assert dead.expires == 0
    assert applied._replace(note=b"") == Receipt(dead.key, StoreMillis(morgue.now() + PROMISE.life))
    assert await morgue.receipt(key_of_increment("a", "x"))
    assert await morgue.replay() == []


async def test_what_an_older_flusher_could_not_read_counts_once() -> None:
    """Also if that flusher was killed before it acknowledged the message, and a newer one counted it."""
    morgue = Morgue()
    await morgue.broker.publish([Message(b'[{"counter": "a"}, {"counter": "a", "delta": 4, "id": "x"}]')])
    await morgue.bury("the data must be a JSON object")
    assert sums(await morgue.replay()) == (2, 0, 0)
    assert await morgue.total() == 5

    await morgue.broker.publish([Message(b'[{"counter": "b"}, {"counter": "b"}]')])
    (delivery,) = await morgue.broker.pull(1, 10**9, 0)
    await morgue.broker.give_back([delivery.token])
    await morgue.flush()
    buried = Letter(replace(delivery, token=delivery.message_id), "the data must be a JSON object")
    assert sums(await morgue.replay([open_letter(buried, "t")])) == (0, 2, 0)
    assert await morgue.total("b") == 2


async def test_what_is_refused_again_stays_dead_with_the_new_reason() -> None:
    morgue = Morgue()
    await morgue.flush(POISON)
    before = await morgue.found(key_of_envelope("p"))
    morgue.clock.turn(1_000)
    morgue.store.reason = "still poison"
    for _ in range(2):
        (outcome,) = await morgue.replay()
        assert (outcome.left, outcome.why) == (5, "still poison")
    assert morgue.broker.buried() == {"1": "still poison"}
    after = await morgue.found(key_of_envelope("p"))
    assert after._replace(body=before.body) == before
    assert [read_body(one).letter.reason for one in (before, after)] == ["poison", "still poison"]
    morgue.cured()
    assert sums(await morgue.replay()) == (5, 0, 0)


async def test_healthy_letters_are_counted_beside_one_that_is_refused_again() -> None:
    morgue = Morgue()
    morgue.store.refused = {f"x{number}" for number in range(40)}
    await morgue.flush(*(Envelope(f"e{number}", {f"x{number}": 1}) for number in range(40)))
    assert len(morgue.broker.buried()) == 40
    morgue.store.refused = {"x13"}
    outcomes = await morgue.replay()
    assert sums(outcomes) == (39, 0, 1)
    assert [outcome.opened.id for outcome in outcomes if outcome.why] == [*morgue.broker.buried()]
    assert [await morgue.total(f"x{number}") for number in (12, 13, 14)] == [1, 0, 1]


async def test_two_letters_of_one_envelope_count_once() -> None:
    """A batch sent twice under one key; or a burial that was cut off between its steps."""
    morgue = Morgue()
    for delta in (5, 7):
        await morgue.flush(Envelope("key", {"poison": delta}, {"poison": 2}, (), 1, retried=True))
    assert len(morgue.broker.buried()) == 2
    morgue.cured()
    assert sums(await morgue.replay()) == (2, 2, 0)
    assert await morgue.total("poison") == 5
    assert morgue.broker.buried() == {}


async def test_an_id_that_was_counted_meanwhile_or_is_in_two_letters_counts_once() -> None:
    morgue = Morgue()
    await morgue.flush(POISON)
    await morgue.flush(Envelope("retry", {}, {}, (Increment("a", 10, "x"),), 1))
    morgue.cured()
    assert sums(await morgue.replay()) == (4, 1, 0)
    assert await morgue.total() == 12
    morgue = Morgue()
    for name in ("e1", "e2"):
        await morgue.flush(Envelope(name, {"poison": 1}, {}, (Increment("a", 10, "x"), Increment("a", 10, "x")), 1))
    morgue.cured()
    assert sums(await morgue.replay()) == (3, 3, 0)
    assert (await morgue.total(), await morgue.total("poison")) == (10, 2)


async def test_of_a_divided_envelope_only_the_dead_parts_are_replayed() -> None:
    morgue = Morgue()
    await morgue.flush(_divided(1))
    assert (await morgue.total("n0000"), await morgue.total("poison")) == (1, 0)
    assert sums(await morgue.replay()) == (0, PART_ENTRIES, 1)
    assert morgue.broker.buried() == {"1": "poison"}
    morgue.cured()
    assert sums(await morgue.replay()) == (1, PART_ENTRIES, 0)
    assert (await morgue.total("n0000"), await morgue.total("poison")) == (1, 1)


async def test_age_does_not_hold_up_what_is_known_to_be_dead() -> None:
    morgue = Morgue(ages=True)
    await morgue.flush(Envelope("e", {"poison": 1}, {}, (), morgue.now()))
    morgue.clock.turn(20 * DAY / 1_000)
    morgue.cured()
    assert sums(await morgue.replay()) == (1, 0, 0)
    assert await morgue.total("poison") == 1


async def test_what_was_buried_for_its_age_is_counted_only_if_somebody_knows() -> None:
    morgue = Morgue(ages=True)
    await morgue.published_ago("old", 9 * DAY)
    await morgue.flush()
    (outcome,) = await morgue.replay()
    assert (outcome.left, outcome.why) == (1, LEFT_AS_UNSURE)
    assert await morgue.total() == 0
    assert morgue.broker.buried() == {"1": TOO_OLD}
    assert sums(await morgue.replay(too_old=True)) == (1, 0, 0)
    assert await morgue.total() == 1


async def test_an_old_letter_without_a_receipt_is_left() -> None:
    """Its receipt may have expired, whatever it said."""
    morgue = Morgue(ages=True)
    await morgue.published_ago("old", 8 * DAY)
    await morgue.bury("unreadable")
    (outcome,) = await morgue.replay()
    assert outcome.why == LEFT_AS_UNSURE


@pytest.mark.parametrize("ahead", [0, 5 * DAY], ids=["", "from an ingest whose clock was ahead"])
@pytest.mark.parametrize("kept", ["letter", "receipt"])
async def test_what_is_old_and_has_an_id_of_which_nothing_is_known_is_left(kept: str, ahead: int) -> None:
    """The envelope is dead; but its id may have counted in another one, whose receipt has expired."""
    morgue = Morgue(ages=True)
    await morgue.flush(Envelope("e", {"poison": 1}, {}, (Increment("a", 1, "x"),), morgue.now() + ahead))
    morgue.cured()
    morgue.clock.turn((8 * DAY - HOUR) / 1_000 + 1)
    (outcome,) = await morgue.replay(await morgue.opened(kept))
    assert outcome.why == LEFT_AS_UNSURE
    await morgue.flush(Envelope("f", {}, {}, (Increment("a", 1, "x"),), morgue.now()))
    assert sums(await morgue.replay(await morgue.opened(kept))) == (1, 1, 0)


async def test_what_is_counted_already_is_forgotten_however_old_it_is() -> None:
    morgue = Morgue(ages=True)
    await morgue.published_ago("old", 9 * DAY)
    await morgue.bury(TOO_OLD)
    await morgue.store.apply(Commit((Receipt(key_of_envelope("old"), StoreMillis(1 << 60)),), ()))
    assert sums(await morgue.replay()) == (0, 1, 0)
    assert morgue.broker.buried() == {}


async def test_a_copy_of_a_second_use_is_told_of_once_although_its_receipt_expires_before_that_of_the_first() -> None:
    morgue = Morgue(ages=True)
    first, second = await morgue.two_uses()
    morgue.cured()
    opened = await morgue.opened()
    assert sums(await morgue.replay(opened)) == (1, 1, 0)
    key = second.as_second_use().key
    assert await morgue.receipt(key)
    morgue.clock.turn(9 * DAY / 1_000)
    await morgue.store.sweep(await morgue.store.now(), 100)
    assert await morgue.receipt(first.key)
    assert await morgue.receipt(key) is None
    await morgue.replay(opened)  # as of one that stood still, or of a letter that the broker delivers twice
    assert await morgue.receipt(key) is None, "it would count as a duplicate once more"
    assert await morgue.total("poison") == 1


async def test_a_second_use_that_is_dead_is_settled_however_old_it_is() -> None:
    morgue = Morgue(ages=True)
    _, second = await morgue.two_uses()
    morgue.cured()
    (of_first, of_second) = await morgue.opened()
    assert sums(await morgue.replay([of_first])) == (1, 0, 0)
    key = second.as_second_use().key
    morgue.clock.turn((7 * DAY + 2 * HOUR) / 1_000)
    assert (await morgue.found(key)).state == "dead"
    assert sums(await morgue.replay([of_second])) == (0, 1, 0)
    assert (await morgue.found(key)).state == "applied"


async def test_a_flusher_that_finds_a_dead_receipt_without_a_body_writes_one_before_it_buries() -> None:
    """Who gave it up was killed before it buried the message."""
    morgue = Morgue()
    key = key_of_envelope("e")
    await morgue.store.apply(Commit((Receipt(key, StoreMillis(morgue.now() + HOUR), "dead"),), ()))
    await morgue.flush(Envelope("e", {"a": 1}))
    assert morgue.broker.buried() == {"1": "given up before"}
    kept = await morgue.found(key)
    assert (kept.expires, kept.state, kept.counters) == (0, "dead", ("a",))
    assert sums(await morgue.replay()) == (1, 0, 0)
    assert await morgue.total() == 1


async def test_a_letter_whose_receipt_an_older_version_wrote_is_replayed_and_kept_if_it_is_refused_again() -> None:
    morgue = Morgue()
    await morgue.publish(POISON)
    key = key_of_envelope("p")
    await morgue.store.apply(Commit((Receipt(key, StoreMillis(morgue.now() + HOUR), "dead"),), ()))
    await morgue.bury("long ago")
    assert sums(await morgue.replay()) == (0, 0, 5)
    (kept,) = await morgue.store.dead("", 10)
    assert (kept.key, kept.expires, kept.counters) == (key, 0, ("a", "poison"))
    morgue.cured()
    assert sums(await morgue.replay()) == (5, 0, 0)
    assert (await morgue.total(), await morgue.total("poison")) == (12, 5)
    assert await morgue.store.dead("", 10) == []


async def test_a_dead_receipt_of_what_came_too_late_lives_as_long_as_its_letter() -> None:
    """Nobody knows whether it was applied, so the store keeps nothing that readers would count."""
    morgue = Morgue(ages=True)
    await morgue.published_ago("old", 9 * DAY)
    key = key_of_envelope("old")
    await morgue.store.apply(Commit((Receipt(key, StoreMillis(morgue.now() + HOUR), "dead"),), ()))
    await morgue.flush()
    assert morgue.broker.buried() == {"1": TOO_OLD}
    assert await morgue.receipt(key) == Receipt(key, StoreMillis(morgue.now() + PROMISE.life), "dead")


async def test_an_old_letter_of_which_the_store_has_the_body_is_counted_without_the_letter() -> None:
    """The subscription of the dead letters has dropped it."""
    morgue = Morgue(ages=True)
    await morgue.flush(Envelope("e", {"poison": 5, "a": 2}, {"poison": 3}, (Increment("a", 10, "x"),), morgue.now()))
    morgue.cured()
    opened = await morgue.opened("receipt")
    assert sums(await morgue.replay(opened)) == (5, 0, 0)
    assert (await morgue.total(), await morgue.total("poison")) == (12, 5)
    assert sums(await morgue.replay(opened)) == (0, 5, 0)
    assert sums(await morgue.replay()) == (0, 5, 0)
    assert await morgue.store.dead("", 10) == []


async def test_a_letter_of_what_was_dropped_is_only_forgotten() -> None:
    morgue = Morgue()
    await morgue.flush(POISON)
    morgue.cured()
    (letter,) = await morgue.opened("receipt")
    await drop(morgue.store, MemoryOverlay(morgue.broker), letter.envelopes, PROMISE)
    outcomes = await morgue.replay()
    assert sums(outcomes) == (0, 0, 0)
    assert [outcome.dropped for outcome in outcomes] == [5]
    assert morgue.broker.buried() == {}
    assert await morgue.total("poison") == 0
    await morgue.flush(POISON)  # it is delivered once more
    assert (await morgue.total("poison"), morgue.broker.unburied()) == (0, 0)


@pytest.mark.parametrize("meanwhile", ["it was replayed", "it expired and was swept"])
async def test_a_flusher_that_found_a_receipt_dead_buries_nothing_if_it_is_not_there_any_more(
    meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    morgue = Morgue()
    key = key_of_envelope("e")
    await morgue.store.apply(Commit((Receipt(key, StoreMillis(1), "dead"),), ()))
    receipts = morgue.store.receipts

    async def behind_its_back(keys: Sequence[str]) -> object:
        monkeypatch.undo()
        found = await receipts(keys)
        if meanwhile == "it was replayed":
            await morgue.store.apply(Commit((), (), (Receipt(key, StoreMillis(1 << 60)),)))
        else:
            await morgue.store.sweep(StoreMillis(2), 10)
        return found

    monkeypatch.setattr(morgue.store, "receipts", behind_its_back)
    await morgue.flush(Envelope("e", {"a": 1}))
    assert morgue.broker.buried() == {}
    assert morgue.broker.unburied() == (meanwhile != "it was replayed"), "what was swept comes again"
    assert await morgue.total() == 0


async def test_a_message_that_came_back_too_late_is_not_counted_by_an_older_letter_of_it() -> None:
    """A replay has counted it; then its receipt expired, and a flusher gave it up anew."""
    morgue = Morgue(ages=True)
    letters = await morgue.counted_long_ago_and_given_up_again()
    assert [one.why for one in await morgue.replay(letters)] == [LEFT_AS_UNSURE]
    assert await morgue.total("poison") == 1
    assert sums(await morgue.replay(letters, too_old=True)) == (1, 0, 0), "somebody knows better"


@pytest.mark.parametrize("one_file", [False, True])
@pytest.mark.parametrize(("days", "why"), [(1, None), (30, STOOD_STILL)])
async def test_a_replay_that_stood_still_does_not_count_a_letter_again(
    one_file: bool, days: int, why: str | None
) -> None:
    """Another one counts it meanwhile. The receipt tells, or is gone by then, or is dead again, for its age."""
    morgue = Morgue(ages=not one_file)
    await morgue.one_letter()
    letters = [open_receipt(one) for one in await morgue.store.dead("", 10)]
    gate = Gate(morgue.store)
    still = asyncio.create_task(Replay(morgue.tools(gate, one_file=one_file), morgue.letters).run(letters))
    await gate.reached.wait()
    await morgue.lived_on_without_it(days)
    gate.go.set()
    assert [(one.counted, one.why) for one in await still] == [(0, why)]
    assert await morgue.total("poison") == 1


@pytest.mark.parametrize("hours", [2, 27, 24 * 7])
async def test_a_receipt_that_a_replay_dated_before_it_stood_still_outlives_other_replays(hours: int) -> None:
    """Otherwise the other one would find nothing, and count the letter as a new one."""
    morgue = Morgue(ages=True)
    await morgue.one_letter()
    life = PROMISE.life / HOUR
    gates = [Gate(morgue.store) for _ in range(2)]
    replays = []
    for gate in gates:
        letters = [open_receipt(one) for one in await morgue.store.dead("", 10)]
        replays.append(asyncio.create_task(Replay(morgue.tools(gate), morgue.letters).run(letters)))
        await gate.reached.wait()
        morgue.clock.turn(hours * HOUR / 1_000 if gate is gates[0] else 0.0)
    gates[0].go.set()
    (first,) = await replays[0]
    assert first.counted == (hours == 2)
    morgue.clock.turn((life - hours + 1) * HOUR / 1_000)
    await morgue.store.sweep(StoreMillis(morgue.now()), 100)
    gates[1].go.set()
    await replays[1]
    assert await morgue.total("poison") == first.counted


async def test_a_letter_that_was_dropped_is_not_counted_by_a_replay_of_a_longer_retention_that_stood_still() -> None:
    morgue = Morgue(ages=True)
    (letter,) = await morgue.one_letter()
    gate, long = Gate(morgue.store), promised(Millis(30 * DAY), DAY)
    still = asyncio.create_task(Replay(morgue.tools(gate, long), morgue.letters).run([letter]))
    await gate.reached.wait()
    morgue.clock.turn(10 * DAY / 1_000)
    await drop(morgue.store, MemoryOverlay(morgue.broker), letter.envelopes, PROMISE)
    morgue.clock.turn(9 * DAY / 1_000)
    await morgue.store.sweep(StoreMillis(morgue.now()), 100)
    gate.go.set()
    await still
    assert await morgue.total("poison") == 0


async def test_a_letter_that_nobody_can_judge_keeps_no_other_one_from_counting() -> None:
    """Neither another use of the same key, nor a copy that was published later, nor another part of the same letter."""
    morgue = Morgue(ages=True)
    first, second = (
        Envelope("k", {"poison": 1}, {}, ids, morgue.now(), retried=True, attempt=attempt)
        for attempt, ids in (("t1", ()), ("t2", (Increment("a", 1, "x"),)))
    )
    await morgue.flush(first)
    await morgue.flush(second)
    await morgue.flush(_divided(morgue.now()))
    morgue.clock.turn(9 * DAY / 1_000)
    while await morgue.store.sweep(StoreMillis(morgue.now()), 1_000):
        pass
    for ago in (7 * DAY + 2 * HOUR, 6 * DAY + 12 * HOUR):
        await morgue.published_ago("e", ago)
        await morgue.bury("unreadable")
    morgue.cured()
    assert [(one.counted, one.left > 0, one.why) for one in await morgue.replay()] == [
        (1, False, None),
        (0, False, None),
        (1, True, LEFT_AS_UNSURE),
        (1, False, None),
        (0, False, None),
    ]
    assert (await morgue.total("poison"), await morgue.total("n0000"), await morgue.total()) == (2, 1, 1)


async def test_a_letter_that_is_refused_again_is_sure_for_no_longer_than_before() -> None:
    """The id in it was counted in another message, whose receipt expires."""
    morgue = Morgue(ages=True)
    for name, total in (("e", {"poison": 1}), ("f", {})):
        await morgue.flush(Envelope(name, total, {}, (Increment("a", 10, "x"),), morgue.now()))
    (before,) = await morgue.store.dead("", 10)
    morgue.clock.turn(15 * DAY / 1_000)
    morgue.store.reason = "still poison"
    assert sums(await morgue.replay()) == (0, 0, 2)
    (after,) = await morgue.store.dead("", 10)
    assert read_body(after) == read_body(before)._replace(letter=read_body(after).letter)
    assert read_body(after).letter.reason == "still poison"


async def test_a_replay_takes_away_a_second_use_of_what_was_dropped() -> None:
    morgue = Morgue(ages=True)
    await morgue.two_uses()
    morgue.cured()
    of_first, _ = await morgue.opened()
    await drop(morgue.store, MemoryOverlay(morgue.broker), of_first.envelopes, PROMISE)
    assert [(one.dropped, one.left) for one in await morgue.replay()] == [(1, 0), (1, 0)]
    assert morgue.broker.buried() == {}


async def test_a_flusher_that_slept_writes_no_body_to_a_receipt_that_says_another_thing_by_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    morgue = Morgue(ages=True)
    key, apply = key_of_envelope("e"), morgue.store.apply
    await morgue.store.apply(Commit((Receipt(key, StoreMillis(morgue.now() + HOUR), DEAD),), ()))

    async def sleep(commit: Commit) -> Instant:
        if commit.revived:
            morgue.clock.turn(30 * DAY / 1_000)
        return await apply(commit)

    monkeypatch.setattr(morgue.store, "apply", sleep)
    await morgue.flush(Envelope("e", {"a": 1}, {}, (), morgue.now()))
    assert not (await morgue.found(key)).body
    assert morgue.broker.unburied() == 1, "it comes again, and is judged anew"


@pytest.mark.parametrize("ages", [True, False])
@pytest.mark.parametrize("kept", ["letter", "receipt"])
@pytest.mark.parametrize("asleep", ["before the receipts are read", "before the commit"])
async def test_a_replay_on_a_machine_that_slept_counts_nothing_twice(
    ages: bool, kept: str, asleep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one was faster, and its receipts are gone by now."""
    morgue = Morgue(ages=ages)
    await morgue.flush(POISON)
    morgue.cured()
    opened = await morgue.opened(kept)
    call = "apply" if asleep == "before the commit" else "receipts"

    async def sleep(what: object) -> object:
        """When it wakes up, the store is as the other one has left it."""
        monkeypatch.undo()
        assert sums(await morgue.replay()) == (5, 0, 0)
        morgue.clock.turn(30 * DAY / 1_000)
        assert await morgue.store.sweep(StoreMillis(morgue.now()), 100)
        if kept == "letter" and not ages:
            monkeypatch.setattr(morgue.store, "apply", gone)
        awake: Callable[[object], Awaitable[object]] = getattr(morgue.store, call)
        return await awake(what)

    async def gone(_: object) -> object:
        """The store is the broker's file, and does not find the message."""
        raise GoneError([opened[0].id])

    monkeypatch.setattr(morgue.store, call, sleep)
    assert sum(one.counted for one in await morgue.replay(opened)) == 0
    assert (await morgue.total(), await morgue.total("poison")) == (12, 5)

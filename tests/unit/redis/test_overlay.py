"""The overlay in Redis: the one that the fleet names now, entries, views, and known promises of the store."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.urls import redis, shown
from shared.fleet import FleetView
from shared.model.buckets import BEGINNING, DAY, NEVER, Instant, Millis, Monotonic, StoreMillis
from shared.model.errors import InexactError, OverloadedError, SettingsError, TransientError
from shared.model.fleet import Fleet, NamedOverlay, PublisherRecord
from shared.model.receipts import Promise, ages, key_of_envelope, promised
from shared.model.words import Envelope, View
from shared.redis.member import ELSEWHERE, FIRST, Naming
from shared.redis.overlay import AGAIN, BELIEVED, KNOWN, MOST_VIEWED, Context, KnownPromises, RedisOverlay, Views
from shared.redis.own_entries import FIRST_LOOK, MOST_IN_ONE_STEP, Copy, PublishTry, in_steps
from shared.redis.server import Links
from tests.world.manual_clock import ManualClock
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore


class Reader:
    """The overlay of one that is no member, with a look of a second ago."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        store = MemoryStore(self.clock)
        self.book = MemoryFleetBook(store)
        self.looks = FleetView(self.book, self.clock, 1.0)
        self.overlay = RedisOverlay("redis://127.0.0.1:1", self.looks, self.clock, membership=None, store=store)

    async def names(self, nonce: str) -> None:
        """Somebody else does."""
        await FleetView(self.book, self.clock, 1.0).change(lambda fleet, _: fleet.names(nonce, f"i{nonce}", "p"))


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    reader = Reader()
    yield reader
    await reader.overlay.close()


async def test_a_list_does_not_come_from_an_overlay_that_was_replaced(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(_script: Any, named: Any, *_: Any) -> list[Any]:
        return [b"ok", [f"in {named.nonce}".encode()]]

    overlay = reader.overlay
    monkeypatch.setattr(overlay._server, "ask", ask)
    overlay._server.up = True
    await reader.names("old")
    assert await overlay.names("") == ["in old"]
    await reader.names("new")
    reader.clock.turn(2.0)
    assert await overlay.names("") == ["in new"]
    overlay._server.up = False
    with pytest.raises(InexactError):  # Redis does not answer, so nobody knows what is in it
        await overlay.names("", exact=True)


@pytest.mark.parametrize("first", ["", "old"])
async def test_what_is_applied_is_settled_where_the_fleet_has_it_now(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """A flusher looks at the fleet each five seconds. Meanwhile an overlay may be named, the first one or another."""
    settled: list[str] = []

    async def ask(_script: Any, named: Any, _time: Any, *keys: str) -> list[Any]:
        if named.nonce != "new":
            return [b"bad"]
        settled.extend(keys[:2])  # a script does only so much
        return [b"ok", 2]

    monkeypatch.setattr(reader.overlay._server, "ask", ask)
    if first:
        await reader.names(first)
    await reader.looks.get()
    await reader.names("new")
    reader.clock.turn(0.1)
    await reader.overlay.settle(["a", "b", "c"], Instant(7))
    assert settled == ["a", "b", "c"]


async def test_without_any_overlay_there_is_nothing_to_settle(reader: Reader) -> None:
    await reader.overlay.settle(["a"], Instant(7))


ONE = promised(Millis(7 * DAY), DAY)


class Asked:
    """A store that is asked for promises, and may be away."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.looks = FleetView(MemoryFleetBook(self.store), self.clock, 0.0)
        self.known = KnownPromises(self._promises, self.looks, self.clock)
        self.away = False
        self.times = 0

    async def _promises(self) -> Sequence[Promise]:
        self.times += 1
        if self.away:
            raise TransientError("it is away")
        return await self.store.promises()


@pytest.fixture
async def asked() -> Asked:
    asked = Asked()
    await asked.looks.get()
    return asked


async def test_the_store_is_asked_every_ten_minutes(asked: Asked) -> None:
    assert asked.known.ages() is None
    for _ in range(3):
        await asked.known.refresh()
    assert asked.times == 1
    await asked.store.promise(ONE)
    assert asked.known.ages() == ages([], asked.looks.now())
    asked.clock.turn(BELIEVED)
    await asked.known.refresh()
    assert asked.known.ages() == ages([ONE], asked.looks.now())


async def test_one_that_is_away_is_asked_again_soon_and_believed_for_an_hour(asked: Asked) -> None:
    await asked.known.refresh()
    asked.away = True
    asked.clock.turn(KNOWN)
    await asked.known.refresh()
    assert asked.known.ages() is not None
    asked.clock.turn(AGAIN - 1)
    await asked.known.refresh()
    assert asked.times == 2
    assert asked.known.ages() is None
    asked.away = False
    asked.clock.turn(1)
    await asked.known.refresh()
    assert asked.known.ages() is not None


async def test_nothing_is_known_before_the_store_has_told_its_time(asked: Asked) -> None:
    known = KnownPromises(asked.store.promises, FleetView(MemoryFleetBook(asked.store), asked.clock, 0.0), asked.clock)
    await known.refresh()
    assert known.ages() is None


NOW = StoreMillis(1_800_000_000_000)


def envelope(name: str, *counters: str) -> Envelope:
    return Envelope(name, dict.fromkeys(counters or ("a",), 1))


@given(st.lists(st.integers(1, 3 * MOST_IN_ONE_STEP), max_size=20))
def test_steps_hold_everything_and_little_at_a_time(sizes: list[int]) -> None:
    tries = [PublishTry(number, envelope("e"), "a", NEVER, Monotonic(0.0)) for number in range(len(sizes))]
    for publish_try, size in zip(tries, sizes, strict=True):
        publish_try.entries = size
    steps = [*in_steps(tries)]
    assert [publish_try for step in steps for publish_try in step] == tries
    assert all(len(step) == 1 or sum(publish_try.entries for publish_try in step) <= MOST_IN_ONE_STEP for step in steps)


def test_attempts_of_one_envelope_have_names_of_their_own() -> None:
    copies = [Copy(9), Copy(9)]
    tries = [
        publish_try for copy in copies for publish_try in copy.add([envelope("e"), envelope("e")], Monotonic(0.0), NOW)
    ]
    for publish_try in tries[1:]:
        publish_try.rename()
    assert len({publish_try.place() for publish_try in tries}) == len(tries) == 4


def test_the_copy_takes_no_more_than_it_may() -> None:
    copy = Copy(3)
    tries = copy.add([envelope("e1", "a", "b"), envelope("e2", "a")], Monotonic(0.0), NOW)
    with pytest.raises(OverloadedError):
        copy.add([envelope("e3")], Monotonic(0.0), NOW)
    copy.withdraw(tries[0])
    copy.add([envelope("e3")], Monotonic(0.0), NOW)
    assert copy.pending.holds([key_of_envelope(name) for name in ("e1", "e2", "e3")]) == {
        key_of_envelope("e2"),
        key_of_envelope("e3"),
    }


def test_only_confirmed_ones_are_written_again_and_looked_at() -> None:
    copy = Copy(100)
    one, _ = copy.add([envelope("e1"), envelope("e2")], Monotonic(0.0), NOW)
    copy.confirm(one)
    assert copy.confirmed() == [one]
    assert copy.due(Monotonic(FIRST_LOOK - 0.1), 10) == []
    assert copy.due(Monotonic(FIRST_LOOK), 10) == [one]
    assert copy.due(Monotonic(FIRST_LOOK + 1), 10) == []
    assert copy.due(Monotonic(3 * FIRST_LOOK), 10) == [one]


def test_one_that_comes_back_after_it_was_settled_is_late_and_goes_again() -> None:
    copy = Copy(100)
    (one,) = copy.add([envelope("e1")], Monotonic(0.0), NOW)
    copy.settle([key_of_envelope("e1")], Instant(7))
    copy.confirm(one)
    (entry,) = copy.view(["a"])["a"].entries
    assert entry.late
    assert entry.confirmed
    assert copy.due(Monotonic(FIRST_LOOK), 10) == [one], "once, though it has been there twice"
    copy.remove_settled([one, one], Instant(9))
    assert copy.entries == 0
    assert copy.view(["a"])["a"].entries == ()


def test_one_that_is_confirmed_without_redis_is_late() -> None:
    copy = Copy(100)
    (one,) = copy.add([envelope("e1")], Monotonic(0.0), NOW)
    copy.confirm(one, late=True)
    (entry,) = copy.view(["a"])["a"].entries
    assert (entry.late, entry.confirmed) == (True, True)
    assert copy.entries == 1


FIELDS = b"\n".join([b"v", b"5", b"f", b"3", b"ex", b"1 10 ekey 4@0"])


def test_a_view_is_another_one_when_anything_of_it_changes() -> None:
    views, counters = Views(), ["a", "never"]

    def look(found: object, epoch: str = "e", floor: int = 0, *, exact: bool = True) -> tuple[int, int]:
        answered = views.answer(views.question(counters, epoch), [found, b""], Context(epoch, exact, Instant(floor)))
        return answered["a"].version, answered["never"].version

    first = look(FIELDS)
    assert [*views.question(counters, "e").arguments()] == ["a", b"5", "never", b""]
    assert look(b"5") == first
    seen = {first, look(b"5", exact=False), look(b"5", floor=Instant(9)), look(FIELDS, epoch="f")}
    assert len({one for one, _ in seen}) == len({two for _, two in seen}) == 4
    assert [*views.question(counters, "f").arguments()] == ["a", b"5", "never", b""]
    assert [*views.question(counters, "g").arguments()] == ["a", b"", "never", b""]
    assert views.answer(views.question(["a"], "f"), [FIELDS], Context("f", True, Instant(9)))["a"].floor == 9


def test_an_answer_comes_after_the_cache_has_forgotten_what_was_asked_with() -> None:
    views, context = Views(), Context("e", exact=True, floor=BEGINNING)

    def learn(name: str, found: bytes) -> View:
        return views.answer(views.question([name], "e"), [found], context)[name]

    first = learn("a", FIELDS)
    asked = views.question(["a"], "e")
    for number in range(MOST_VIEWED + 1):
        learn(f"b{number}", FIELDS)
    assert views.question(["a"], "e").known == {}
    assert views.answer(asked, [b"5"], context)["a"] is first
    again, asked = learn("a", FIELDS), views.question(["a"], "e")
    learn("a", b"")  # it was removed a moment later, and that answer was the first to come
    assert views.answer(asked, [b"5"], context)["a"] is again


def test_an_answer_of_an_earlier_epoch_is_not_kept_for_the_next_one() -> None:
    views = Views()
    asked = views.question(["a"], "e")
    assert views.question(["a"], "f").known == {}
    assert views.answer(asked, [FIELDS], Context("e", exact=True, floor=BEGINNING))["a"].epoch == "e"
    assert views.question(["a"], "f").known == {}


HERE = Fleet(1, NamedOverlay(1, "n", "i", "here"), {"m": PublisherRecord(1, 1)})


def test_an_overlay_that_nobody_else_speaks_for_is_named_at_once() -> None:
    naming = Naming("here")
    assert naming.due(Fleet(), "j", 0.0), "there is none"
    naming.named("n", 0.0)
    assert naming.due(HERE, "j", 0.1), "it is the one that was named here"
    assert Naming("here").due(replace(HERE, overlay=HERE.overlay._replace(nonce="x")), "i", 0.0), "it was emptied"


def test_two_sides_of_a_split_name_theirs_more_and_more_slowly() -> None:
    naming = Naming("here")
    assert naming.due(HERE, "j", 0.0)
    naming.named("mine", 0.0)
    assert not naming.due(HERE, "j", FIRST - 0.1)
    assert naming.due(HERE, "j", FIRST)
    naming.named("mine", FIRST)
    assert not naming.due(HERE, "j", 3 * FIRST - 0.1)
    assert naming.due(HERE, "j", 3 * FIRST)
    database = replace(HERE, overlay=HERE.overlay._replace(place="here/1"))
    assert not naming.due(database, "i", 3 * FIRST), "the same server's other database is another overlay"
    naming.named("mine", 1_000.0)
    assert naming.due(HERE, "j", 1_000.0 + FIRST), "after a calm it begins anew"


def test_an_overlay_elsewhere_is_left_to_its_members_for_a_while() -> None:
    naming = Naming("here")
    other = replace(HERE, overlay=HERE.overlay._replace(place="there"))
    assert not naming.due(other, "j", 0.0)
    assert naming.due(replace(other, members={"m": PublisherRecord(0, 1)}), "j", 1.0), "nobody has joined it"
    assert not naming.due(other, "j", ELSEWHERE - 0.1)
    assert naming.due(other, "j", ELSEWHERE)


@pytest.mark.parametrize(
    "url", ["redis://h:1/0", "rediss://h", "valkey://h:6379/2", "valkeys://h", "unix:///run/r.sock"]
)
async def test_urls(url: str) -> None:
    redis("OVERLAY", url)
    await Links(url).close()


@pytest.mark.parametrize(
    "url",
    ["http://h", "redis:h", "redis://", "redis://:secret@h:port", "redis://me:secret@h/name", "redis://[h", "unix://"],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^OVERLAY='.*': must be memory:// or redis://HOST") as refused:
        redis("OVERLAY", url)
    assert "secret" not in str(refused.value)


async def test_options_that_nobody_knows_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"^redis://h: .*colour") as refused:
        Links("redis://:secret@h?colour=red")
    assert "secret" not in str(refused.value)


def test_no_password_is_shown() -> None:
    assert shown("redis://me:secret@h:1/2?password=secret") == "redis://h:1/2"

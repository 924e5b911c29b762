"""The contract of an Overlay whose entries are written by those who publish, not kept by a broker."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from shared.model.buckets import BEGINNING, Instant
from shared.model.errors import InexactError, TransientError
from shared.model.receipts import key_of_envelope, key_of_increment
from shared.model.words import MAX_SUM, Entry, Envelope, Increment, View, divided
from shared.ports.overlay import Overlay
from tests.contracts.overlay import KEYED, PLAIN, WHOLE, entries, view

PATIENCE = 20.0


@dataclass
class Written:
    """An overlay, and what differs between kinds of them."""

    overlay: Overlay
    elsewhere: Overlay
    """Another process of the fleet; the same one if there is none."""
    exact: bool
    later: Callable[[float], Awaitable[None]]
    """So many seconds pass."""


ODD = ['"', "\\", "a b", "ünï", "€😀", "x:y/z", "{}", "1", "[", "%", "a\u2028b"]


class PublishError(TransientError):
    """A broker is away."""


async def fail(overlay: Overlay, *envelopes: Envelope, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
    """Their publish fails."""

    async def publish() -> None:
        async with overlay.entered(envelopes):
            if meanwhile is not None:
                await meanwhile()
            raise PublishError

    with pytest.raises(PublishError):
        await publish()


async def enter(overlay: Overlay, *envelopes: Envelope) -> None:
    async with overlay.entered(envelopes):
        pass


class EntriesContract:
    """Inherit it and say what `written` is."""

    async def test_an_entry_tells_when_its_increments_were_made(self, written: Written) -> None:
        await enter(written.overlay, Envelope("e", {"a": 5}, created=1_234_567_890_123))
        assert [entry.created for entry in await entries(written.overlay, "a")] == [1_234_567_890_123]

    async def test_entries_are_unconfirmed_while_they_are_published_and_confirmed_after(self, written: Written) -> None:
        key = key_of_envelope("plain")
        async with written.overlay.entered([PLAIN]):
            for overlay in (written.overlay, written.elsewhere):
                assert await entries(overlay, "a") == (Entry(key, 3, confirmed=False),)
                assert await entries(overlay, "b") == (Entry(key, 1, confirmed=False),)
                assert set(await overlay.holds([key, "none"])) == {key}
        for overlay in (written.overlay, written.elsewhere):
            assert await entries(overlay, "a") == (Entry(key, 3),)
            assert await entries(overlay, "b") == (Entry(key, 1),)
            assert await entries(overlay, "c") == ()

    async def test_it_says_whether_it_sees_every_process(self, written: Written) -> None:
        for overlay in (written.overlay, written.elsewhere):
            assert (await view(overlay, "a")).exact == written.exact
        await enter(written.overlay, PLAIN)
        for overlay in (written.overlay, written.elsewhere):
            assert (await view(overlay, "a")).exact == written.exact

    async def test_all_that_is_pending_under_prefixes_is_shown_with_the_highest_floor(self, written: Written) -> None:
        await enter(written.overlay, PLAIN, KEYED)
        await written.elsewhere.settle([key_of_envelope("keyed")], Instant(7))
        for overlay in (written.overlay, written.elsewhere):
            views, rest = await overlay.under(["a", "c"])
            assert {name: [*view.entries] for name, view in views.items()} == {
                "a": [Entry(key_of_envelope("plain"), 3)]
            }
            assert (rest.entries, rest.exact) == ((), written.exact)
            assert rest.floor >= 7
            assert {*(await overlay.under([""]))[0]} == {"a", "b"}

    async def test_what_could_not_be_published_is_withdrawn(self, written: Written) -> None:
        await enter(written.overlay, WHOLE)
        await fail(written.overlay, PLAIN, KEYED)
        for overlay in (written.overlay, written.elsewhere):
            assert [entry.key for entry in await entries(overlay, "a")] == [key_of_envelope("key-1")]
            assert await entries(overlay, "b") == ()
            assert sorted(await overlay.names("")) == ["a"]
            assert not await overlay.holds([key_of_envelope("plain"), key_of_envelope("keyed")])

    async def test_what_was_cancelled_adds_to_nothing_and_goes(self, written: Written) -> None:
        begun = asyncio.Event()

        async def publish() -> None:
            async with written.overlay.entered([PLAIN]):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(publish())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for overlay in (written.overlay, written.elsewhere):
            assert not any(entry.confirmed for entry in await entries(overlay, "a"))
            async with asyncio.timeout(PATIENCE):
                while await entries(overlay, "a"):
                    await asyncio.sleep(0.01)

    async def test_an_attempt_that_failed_does_not_take_another_ones_entry(self, written: Written) -> None:
        """Of the same id: its publish may have been answered."""
        key = key_of_envelope("key-1")
        await fail(written.overlay, WHOLE, meanwhile=lambda: enter(written.elsewhere, WHOLE))
        assert [(entry.key, entry.confirmed) for entry in await entries(written.elsewhere, "a")] == [(key, True)]
        assert set(await written.elsewhere.holds([key])) == {key}

    async def test_ids_are_kept_apart_and_make_an_entry_late(self, written: Written) -> None:
        await enter(written.overlay, KEYED, WHOLE)
        keyed, whole = key_of_envelope("keyed"), key_of_envelope("key-1")
        for overlay in (written.overlay, written.elsewhere):
            assert await entries(overlay, "a") == (
                Entry(keyed, 1, ((key_of_increment("a", "x"), 5),), late=True),
                Entry(whole, 9, (), late=True),
            )
            assert await entries(overlay, "c") == (Entry(keyed, 0, ((key_of_increment("c", "y"), 7),), late=True),)

    async def test_settled_entries_go_and_the_floors_of_their_counters_rise(self, written: Written) -> None:
        await enter(written.overlay, PLAIN, WHOLE)
        await written.elsewhere.settle([key_of_envelope("plain"), "none"], Instant(7))
        for overlay in (written.elsewhere,):
            assert [entry.key for entry in await entries(overlay, "a")] == [key_of_envelope("key-1")]
            assert await entries(overlay, "b") == ()
            assert (await view(overlay, "a")).floor == 7
            assert (await view(overlay, "b")).floor == 7
            assert (await view(overlay, "never")).floor < 7, "that of all counters, if there is one"
            assert not await overlay.holds([key_of_envelope("plain")])
            assert sorted(await overlay.names("")) == ["a"]

    async def test_floors_never_fall_and_are_numbers_of_any_length(self, written: Written) -> None:
        for floor, highest in (
            *((9, 9), (3, 9), (10, 10), (9, 10)),
            *((2**53 + 1, 2**53 + 1), (2**53, 2**53 + 1), (2**62 + 1, 2**62 + 1), (2**62, 2**62 + 1)),
        ):
            await enter(written.overlay, PLAIN)
            await written.overlay.settle([key_of_envelope("plain")], Instant(floor))
            assert (await view(written.elsewhere, "a")).floor == highest

    async def test_a_withdrawal_raises_no_floor(self, written: Written) -> None:
        await enter(written.overlay, PLAIN)
        await written.overlay.settle([key_of_envelope("plain")], Instant(4))
        await fail(written.overlay, PLAIN)
        assert (await view(written.overlay, "a")).floor == 4

    async def test_what_is_gone_when_it_is_to_be_confirmed_is_made_anew_and_late(self, written: Written) -> None:
        """Somebody saw it applied while its publish was still under way; a base of then may lack it."""
        async with written.overlay.entered([PLAIN]):
            await written.overlay.settle([key_of_envelope("plain")], Instant(7))
            assert await entries(written.overlay, "a") == ()
        for overlay in (written.overlay, written.elsewhere):
            assert await entries(overlay, "a") == (Entry(key_of_envelope("plain"), 3, late=True),)
            assert (await view(overlay, "a")).floor == 7
        await written.overlay.settle([key_of_envelope("plain")], Instant(8))
        assert await entries(written.elsewhere, "a") == ()

    async def test_a_floor_is_raised_for_all_processes_and_entries_stay(self, written: Written) -> None:
        await enter(written.overlay, PLAIN)
        before = await view(written.elsewhere, "a")
        large = Instant(2**61)
        for counter in ("a", "never"):
            await written.elsewhere.changed([counter], Instant(large + 1))
            await written.overlay.changed([counter], large)
            for overlay in (written.overlay, written.elsewhere):
                assert (await view(overlay, counter)).floor == large + 1
        after = await view(written.elsewhere, "a")
        assert after.entries == before.entries
        assert after.version != before.version
        assert (await view(written.overlay, "b")).floor < large

    async def test_a_mark_is_an_entry_of_nothing_until_the_change_is_done(self, written: Written) -> None:
        """Everywhere, and of each try. What finds it applied removes it like an entry."""
        names = ["a", "never", *ODD]
        marks = [Entry("receipt", 0, confirmed=False)] * 2 if written.exact else []
        for done in (True, False):
            floor = Instant(10 - done)
            await enter(written.elsewhere, Envelope(f"other {done}", {"a": 1}))
            (other,) = await entries(written.overlay, "a")
            for overlay in (written.overlay, written.elsewhere):
                assert await overlay.mark("receipt", names) == (await view(overlay, "a")).epoch or not written.exact
            for overlay in (written.overlay, written.elsewhere):
                assert [*await entries(overlay, "a")] == [other, *marks]
                assert [[*await entries(overlay, name)] for name in names[1:]] == [marks] * len(names[1:])
                assert (await view(overlay, "never")).floor < floor
            if done:
                await written.elsewhere.changed(names, floor, "receipt")
            else:
                await written.elsewhere.settle(["receipt"], floor)
            for overlay in (written.overlay, written.elsewhere):
                assert [*await entries(overlay, "a")] == [other]
                assert [[*await entries(overlay, name)] for name in names[1:]] == [[]] * len(names[1:])
                assert (await view(overlay, "never")).floor >= floor or not written.exact
            await written.overlay.settle([other.key], BEGINNING)

    async def test_there_is_no_mark_in_another_epoch_than_that_of_the_reading(self, written: Written) -> None:
        if written.exact and (epoch := (await view(written.overlay, "a")).epoch):
            assert await written.overlay.mark("receipt", ["a"], epoch) == epoch
            with pytest.raises(InexactError):
                await written.overlay.mark("another", ["a"], "another epoch")
            assert [entry.key for entry in await entries(written.overlay, "a")] == ["receipt"]

    async def test_two_attempts_are_two_entries_and_settled_together(self, written: Written) -> None:
        await enter(written.overlay, PLAIN)
        await enter(written.elsewhere, PLAIN)
        key = key_of_envelope("plain")
        assert await entries(written.overlay, "a") == (Entry(key, 3), Entry(key, 3))
        await written.overlay.settle([key], Instant(1))
        for overlay in (written.overlay, written.elsewhere):
            assert await entries(overlay, "a") == ()
            assert not await overlay.holds([key])

    async def test_entries_are_in_order_of_arrival(self, written: Written) -> None:
        names = [f"e{number}" for number in range(12)]
        for name in names[:-2]:
            await enter(written.overlay, Envelope(name, {"a": 1}))
        await enter(written.elsewhere, *(Envelope(name, {"a": 1}) for name in names[-2:]))
        found = [entry.key for entry in await entries(written.elsewhere, "a")]
        assert found == [key_of_envelope(name) for name in names]

    async def test_sums_and_names_are_what_they_were(self, written: Written) -> None:
        sums = {name: (-1) ** number * (MAX_SUM - number) for number, name in enumerate(ODD)}
        keyed = (*(Increment(name, -(2**53) + 1, 'i"d €') for name in ODD), Increment("keyed only", 0, "x"))
        await enter(written.overlay, Envelope("odd", sums, {}, keyed))
        views = await written.elsewhere.view([*sums, "keyed only"])
        for name, delta in sums.items():
            ids = ((key_of_increment(name, 'i"d €'), -(2**53) + 1),)
            assert [(one.delta, one.keyed) for found in [views[name]] for one in found.entries] in (
                [(delta, ids)],
                [(delta, ()), (0, ids)],  # divided: too much for one commit
            )
        assert sorted(await written.elsewhere.names("")) == sorted(views)

    async def test_a_large_envelope_stands_there_in_parts(self, written: Written) -> None:
        large = Envelope("large", {f"n{number}": number for number in range(2_100)}, {}, (Increment("n0", 7, "x"),))
        parts = divided(large)
        assert len(parts) > 1
        await enter(written.overlay, *parts, PLAIN)
        views = await written.elsewhere.view([*large.sums])
        assert {entry.key for found in views.values() for entry in found.entries} == {part.key for part in parts}
        assert all(sum(e.delta for e in views[name].entries) == total for name, total in large.sums.items())
        await written.elsewhere.settle([part.key for part in parts], Instant(1))
        assert sorted(await written.elsewhere.names("")) == ["a", "b"]
        assert not await written.elsewhere.holds([part.key for part in parts])

    async def test_names_are_those_with_an_entry_of_a_prefix(self, written: Written) -> None:
        await enter(written.overlay, Envelope("e", dict.fromkeys(["a", "ab", "abc", "b", "€1", "€2"], 1)))
        for overlay in (written.overlay, written.elsewhere):
            assert sorted(await overlay.names("ab")) == ["ab", "abc"]
            assert sorted(await overlay.names("€")) == ["€1", "€2"]
            assert [*await overlay.names("z")] == []
            assert len(await overlay.names("")) == 6
            assert [*await overlay.names("a", "a", 1)] == ["ab"]
            assert [*await overlay.names("", "ab", 3)] == ["abc", "b", "€1"]
            assert [*await overlay.names("€", "b", 3)] == ["€1", "€2"]
            assert [*await overlay.names("a", "b", 3)] == []

    async def test_equal_versions_mean_equal_views(self, written: Written) -> None:
        seen: dict[int, View] = {}

        async def look() -> None:
            for overlay in (written.overlay, written.elsewhere):
                for counter, found in (await overlay.view(["a", "b", "c"])).items():
                    known = seen.setdefault(found.version, found)
                    assert known == found, counter

        for step in range(4):
            await look()
            async with written.overlay.entered([PLAIN]):
                await look()
            await look()
            if step % 2:
                await written.overlay.settle([key_of_envelope("plain")], Instant(step))

    async def test_a_view_that_has_not_changed_has_the_version_it_had(self, written: Written) -> None:
        """So that readers need not add up again."""
        await enter(written.overlay, PLAIN)
        first = await view(written.overlay, "a")
        await enter(written.overlay, Envelope("other", {"z": 1}))
        assert (await view(written.overlay, "a")).version == first.version

    async def test_counters_are_viewed_at_one_instant(self, written: Written) -> None:
        names, done = ("a", "b", "c"), asyncio.Event()

        async def write() -> None:
            for number in range(25):
                await enter(written.overlay, Envelope(f"e{number}", dict.fromkeys(names, 1)))
                await asyncio.sleep(0)
                if number % 3 == 0:
                    await written.overlay.settle([key_of_envelope(f"e{number}")], Instant(number + 1))
            done.set()

        async def look(overlay: Overlay) -> None:
            while not done.is_set():
                views = await overlay.view(names)
                keys = [[(entry.key, entry.confirmed) for entry in views[name].entries] for name in names]
                assert keys[0] == keys[1] == keys[2]
                assert len({views[name].floor for name in names}) == 1
                await asyncio.sleep(0)

        await asyncio.gather(write(), look(written.overlay), look(written.elsewhere))

    async def test_what_nobody_settles_is_named_after_a_while_that_doubles(self, written: Written) -> None:
        await enter(written.overlay, PLAIN, WHOLE)
        both = {key_of_envelope("plain"), key_of_envelope("key-1")}
        assert not await written.overlay.unsettled(10)
        await written.later(PATIENCE + 1)
        assert set(await written.overlay.unsettled(10)) == both
        assert not await written.overlay.unsettled(10)
        await written.later(PATIENCE + 3)
        assert set(await written.overlay.unsettled(1)) < both
        assert len(await written.overlay.unsettled(10)) == 1
        await written.later(PATIENCE + 3)
        assert not await written.overlay.unsettled(10)
        await written.later(PATIENCE + 3)
        await written.overlay.settle([key_of_envelope("plain")], Instant(1))
        assert set(await written.overlay.unsettled(10)) == {key_of_envelope("key-1")}

    async def test_counters_may_be_asked_twice_or_not_at_all(self, written: Written) -> None:
        await enter(written.overlay)
        assert [*await written.overlay.names("")] == []
        await enter(written.overlay, PLAIN)
        assert set(await written.overlay.view(["a", "a", "b"])) == {"a", "b"}
        assert await written.overlay.view([]) == {}
        assert not await written.overlay.holds([])
        await written.overlay.settle([], Instant(3))
        assert len(await entries(written.overlay, "a")) == 1

"""The contract of an Overlay that a broker keeps: its pending messages."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from shared.model.buckets import Instant
from shared.model.receipts import key_of_envelope, key_of_increment
from shared.model.words import Delivery, Entry, Envelope, Increment, Message, View, divided
from shared.ports.broker import Publisher, Subscription
from shared.ports.overlay import Overlay
from shared.wire.codec import encode


@dataclass
class Accepted:
    """A broker and the overlay of its pending messages."""

    publisher: Publisher
    subscription: Subscription
    overlay: Overlay
    elsewhere: Overlay
    """As another process sees it."""
    restarted: Callable[[], Awaitable[Overlay]]
    """As a process that starts now sees it."""
    changed: Callable[[Sequence[str], Instant], Awaitable[object]]
    """A process changes counters at an instant."""


PLAIN = Envelope("plain", {"a": 3, "b": 1}, {"a": 2}, (), 1)
KEYED = Envelope("keyed", {"a": 1}, {}, (Increment("a", 5, "x"), Increment("c", 7, "y")), 1)
WHOLE = Envelope("key-1", {"a": 9}, {}, (), 1, retried=True)


async def entries(overlay: Overlay, counter: str) -> Sequence[Entry]:
    return (await view(overlay, counter)).entries


async def view(overlay: Overlay, counter: str) -> View:
    return (await overlay.view([counter]))[counter]


async def publish(accepted: Accepted, *envelopes: Envelope) -> None:
    await accepted.publisher.publish([encode(envelope) for envelope in envelopes])


async def pull(accepted: Accepted) -> list[Delivery]:
    return [*await accepted.subscription.pull(100, 10**6, 1.0)]


async def ack_all(accepted: Accepted, floor: Instant) -> None:
    held = await pull(accepted)
    await accepted.subscription.ack([delivery.token for delivery in held], floor)


class OverlayContract:
    """Inherit it and say what `accepted` is."""

    async def test_every_process_sees_an_entry_until_an_ack_raises_the_floor_in_the_same_step(
        self, accepted: Accepted
    ) -> None:
        both = (accepted.overlay, accepted.elsewhere)
        for overlay in both:
            found = await view(overlay, "a")
            assert (found.entries, found.exact) == ((), True)
        await publish(accepted, PLAIN)
        for overlay in both:
            assert len(await entries(overlay, "a")) == 1
        floor = Instant((await view(accepted.overlay, "a")).floor + 7)
        await ack_all(accepted, floor)
        for overlay in both:
            found = await view(overlay, "a")
            assert (found.entries, found.floor >= floor) == ((), True)

    async def test_an_entry_is_there_as_soon_as_its_publish_has_returned(self, accepted: Accepted) -> None:
        await publish(accepted, PLAIN)
        key = key_of_envelope("plain")
        assert await entries(accepted.overlay, "a") == (Entry(key, 3),)
        assert await entries(accepted.overlay, "b") == (Entry(key, 1),)
        assert await entries(accepted.overlay, "c") == ()

    async def test_ids_are_kept_apart_and_make_an_entry_late(self, accepted: Accepted) -> None:
        await publish(accepted, KEYED, WHOLE)
        key = key_of_envelope("keyed")
        assert await entries(accepted.overlay, "a") == (
            Entry(key, 1, ((key_of_increment("a", "x"), 5),), late=True),
            Entry(key_of_envelope("key-1"), 9, (), late=True),
        )
        assert await entries(accepted.overlay, "c") == (Entry(key, 0, ((key_of_increment("c", "y"), 7),), late=True),)

    async def test_entries_are_in_order_of_arrival(self, accepted: Accepted) -> None:
        await publish(accepted, PLAIN)
        await publish(accepted, KEYED, WHOLE)
        found = [entry.key for entry in await entries(accepted.overlay, "a")]
        assert found == [key_of_envelope(name) for name in ("plain", "keyed", "key-1")]

    async def test_an_entry_stays_until_its_ack(self, accepted: Accepted) -> None:
        await publish(accepted, PLAIN)
        held = await pull(accepted)
        assert len(await entries(accepted.overlay, "a")) == 1
        await accepted.subscription.give_back([held[0].token])
        assert len(await entries(accepted.overlay, "a")) == 1
        await ack_all(accepted, floor=Instant(1))
        assert await entries(accepted.overlay, "a") == ()

    async def test_the_floor_rises_for_counters_that_were_never_looked_at(self, accepted: Accepted) -> None:
        """Somebody may hold a base of them all the same."""
        await view(accepted.overlay, "z")
        await publish(accepted, PLAIN)
        await ack_all(accepted, floor=Instant(5))
        assert (await view(accepted.overlay, "b")).floor >= 5

    async def test_the_floor_never_falls(self, accepted: Accepted) -> None:
        for floor in (9, 3):
            await publish(accepted, PLAIN)
            await ack_all(accepted, Instant(floor))
        assert (await view(accepted.overlay, "a")).floor >= 9

    async def test_a_floor_is_raised_for_all_processes_and_entries_stay(self, accepted: Accepted) -> None:
        """Also of a counter that nobody has looked at yet, and of one that only one process has."""
        await publish(accepted, PLAIN)
        before = await view(accepted.elsewhere, "a")
        for counter in ("a", "never"):
            await accepted.changed([counter], Instant(12))
            for overlay in (accepted.overlay, accepted.elsewhere, await accepted.restarted()):
                assert (await view(overlay, counter)).floor >= 12
        after = await view(accepted.elsewhere, "a")
        assert after.entries == before.entries
        assert after.version != before.version
        await accepted.changed(["a"], Instant(5))
        await ack_all(accepted, floor=Instant(7))
        assert (await view(accepted.overlay, "a")).floor >= 12

    async def test_all_that_is_pending_under_prefixes_is_shown_with_the_highest_floor(self, accepted: Accepted) -> None:
        await publish(accepted, KEYED)
        await ack_all(accepted, floor=Instant(9))
        await publish(accepted, PLAIN)
        for overlay in (accepted.overlay, accepted.elsewhere):
            views, rest = await overlay.under(["a", "c"])
            assert {name: [*view.entries] for name, view in views.items()} == {
                "a": [Entry(key_of_envelope("plain"), 3)]
            }
            assert (rest.entries, rest.exact) == ((), True)
            assert rest.floor >= 9
            assert {*(await overlay.under([""]))[0]} == {"a", "b"}

    async def test_a_stale_ack_takes_no_entry(self, accepted: Accepted) -> None:
        await publish(accepted, PLAIN)
        (held,) = await pull(accepted)
        await accepted.subscription.give_back([held.token])
        await pull(accepted)
        await accepted.subscription.ack([held.token], floor=Instant(5))
        assert len(await entries(accepted.overlay, "a")) == 1

    async def test_what_is_buried_stays_pending(self, accepted: Accepted) -> None:
        """It was accepted, and it is not applied."""
        await publish(accepted, PLAIN)
        (held,) = await pull(accepted)
        await accepted.subscription.bury(held, "because")
        assert len(await entries(accepted.overlay, "a")) == 1
        assert len(await entries(accepted.elsewhere, "a")) == 1

    async def test_what_nobody_can_read_is_no_entry_and_its_ack_disturbs_nothing(self, accepted: Accepted) -> None:
        await accepted.publisher.publish([Message(b"rubbish")])
        await ack_all(accepted, floor=Instant(3))
        await accepted.publisher.publish([Message(b"rubbish"), encode(PLAIN)])
        for overlay in (accepted.overlay, accepted.elsewhere):
            assert len(await entries(overlay, "a")) == 1

    async def test_counters_are_viewed_at_one_instant(self, accepted: Accepted) -> None:
        """All of an envelope is there or nothing of it, and its floors rise when its entries go."""
        names, done, applied = ("a", "b", "c"), asyncio.Event(), [0]

        async def write() -> None:
            for number in range(40):
                await publish(accepted, Envelope(f"e{number}", dict.fromkeys(names, 1)))
                applied[0] = number + 1
                await asyncio.sleep(0)
                if number % 3 == 0:
                    await ack_all(accepted, floor=Instant(number + 1))
                    await asyncio.sleep(0)
            done.set()

        async def look(overlay: Overlay) -> None:
            while not done.is_set():
                least = applied[0]
                views = await overlay.view(names)
                keys = [{entry.key for entry in views[name].entries} for name in names]
                assert keys[0] == keys[1] == keys[2]
                assert len({views[name].floor for name in names}) == 1
                assert len(keys[0]) + views["a"].floor >= least
                await asyncio.sleep(0)

        await asyncio.gather(write(), look(accepted.overlay), look(accepted.elsewhere))

    async def test_what_came_and_went_between_two_looks_raises_the_floor(self, accepted: Accepted) -> None:
        for overlay in (accepted.overlay, accepted.elsewhere):
            assert await entries(overlay, "a") == ()
        await publish(accepted, PLAIN, KEYED)
        await ack_all(accepted, floor=Instant(5))
        for overlay in (accepted.overlay, accepted.elsewhere):
            views = await overlay.view(["a", "b", "c"])
            assert all(found.floor >= 5 and not found.entries for found in views.values())

    async def test_two_copies_are_two_entries_and_go_one_by_one(self, accepted: Accepted) -> None:
        """A publish that was repeated: readers count the key once, but it is there until the last copy is gone."""
        key = key_of_envelope("plain")
        await publish(accepted, PLAIN)
        await publish(accepted, PLAIN)
        assert await entries(accepted.overlay, "a") == (Entry(key, 3), Entry(key, 3))
        one, two = await pull(accepted)
        await accepted.subscription.ack([one.token], floor=Instant(1))
        assert await entries(accepted.overlay, "a") == (Entry(key, 3),)
        assert set(await accepted.overlay.holds([key])) == {key}
        await accepted.subscription.ack([two.token], floor=Instant(2))
        assert await entries(accepted.overlay, "a") == ()
        assert not await accepted.overlay.holds([key])

    async def test_a_large_envelope_stands_there_in_parts(self, accepted: Accepted) -> None:
        large = Envelope("large", {f"n{number}": number for number in range(2_100)}, {}, (Increment("n0", 7, "x"),))
        parts = divided(large)
        assert len(parts) > 1
        await publish(accepted, large)
        views = await accepted.overlay.view([*large.sums])
        keys = {part.key for part in parts}
        assert {entry.key for found in views.values() for entry in found.entries} == keys
        assert all(sum(e.delta for e in views[name].entries) == total for name, total in large.sums.items())
        assert set(await accepted.elsewhere.holds([*keys, "none"])) == keys
        await ack_all(accepted, floor=Instant(1))
        assert [*await accepted.overlay.names("")] == []
        assert not await accepted.elsewhere.holds(keys)

    async def test_foreign_messages_are_entries_too(self, accepted: Accepted) -> None:
        """Late if they have an id of their publisher's: another copy may have been applied."""
        named = {"ce-source": "s", "ce-id": "1"}
        await accepted.publisher.publish([Message(b'{"counter":"a","delta":4}'), Message(b'{"counter":"a"}', named)])
        found = await entries(accepted.overlay, "a")
        assert [(entry.delta, entry.late) for entry in found] == [(4, False), (1, True)]
        assert await entries(accepted.elsewhere, "a") == found
        assert await entries(await accepted.restarted(), "a") == found

    async def test_equal_versions_mean_equal_views(self, accepted: Accepted) -> None:
        seen: dict[int, View] = {}
        for step in range(6):
            for counter in ("a", "b", "never"):
                one = await view(accepted.overlay, counter)
                if counter != "never":
                    known = seen.setdefault(one.version, one)
                    assert (known.entries, known.floor) == (one.entries, one.floor)
            if step % 2:
                await ack_all(accepted, floor=Instant(step))
            else:
                await publish(accepted, PLAIN)

    async def test_names_are_those_with_an_entry(self, accepted: Accepted) -> None:
        await publish(accepted, PLAIN, KEYED)
        assert sorted(await accepted.overlay.names("")) == ["a", "b", "c"]
        assert sorted(await accepted.overlay.names("", exact=True)) == ["a", "b", "c"]
        assert sorted(await accepted.overlay.names("b")) == ["b"]
        assert [*await accepted.overlay.names("", "a")] == ["b", "c"]
        assert [*await accepted.overlay.names("", "", 2)] == ["a", "b"]
        assert [*await accepted.overlay.names("", "a", 1)] == ["b"]
        assert [*await accepted.overlay.names("b", "a", 2)] == ["b"]
        assert [*await accepted.overlay.names("b", "b", 2)] == []
        await ack_all(accepted, floor=Instant(1))
        assert [*await accepted.overlay.names("")] == []

    async def test_the_second_of_one_key_is_no_entry_while_the_first_is_there(self, accepted: Accepted) -> None:
        """The first body wins."""
        other = Envelope("key-1", {"a": 100}, {}, (), 2, retried=True)
        await publish(accepted, WHOLE)
        await publish(accepted, other)
        assert [entry.delta for entry in await entries(accepted.overlay, "a")] == [9]

    async def test_a_restart_changes_nothing(self, accepted: Accepted) -> None:
        await publish(accepted, PLAIN)
        await ack_all(accepted, floor=Instant(6))
        await publish(accepted, KEYED)
        before = await view(accepted.overlay, "a")
        after = await view(await accepted.restarted(), "a")
        assert (after.entries, after.floor) == (before.entries, before.floor)

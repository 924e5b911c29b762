"""The contract of an Overlay that a broker keeps: its pending messages."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shared.codec import encode
from shared.ports import Overlay, Publisher, Subscription
from shared.receipts import key_of_envelope, key_of_increment
from shared.words import Delivery, Entry, Envelope, Increment, Message, View


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


PLAIN = Envelope("plain", {"a": 3, "b": 1}, {"a": 2}, (), 1)
KEYED = Envelope("keyed", {"a": 1}, {}, (Increment("a", 5, "x"), Increment("c", 7, "y")), 1)
WHOLE = Envelope("key-1", {"a": 9}, {}, (), 1, retried=True)


async def entries(overlay: Overlay, counter: str) -> tuple[Entry, ...]:
    return (await view(overlay, counter)).entries


async def view(overlay: Overlay, counter: str) -> View:
    return (await overlay.view([counter]))[counter]


async def publish(accepted: Accepted, *envelopes: Envelope) -> None:
    await accepted.publisher.publish([encode(envelope) for envelope in envelopes])


async def pull(accepted: Accepted) -> list[Delivery]:
    return [*await accepted.subscription.pull(100, 10**6, 1.0)]


async def ack_all(accepted: Accepted, floor: int) -> None:
    held = await pull(accepted)
    await accepted.subscription.ack([delivery.token for delivery in held], floor)


class OverlayContract:
    """Inherit it and say what `accepted` is."""

    async def test_it_sees_every_process(self, accepted: Accepted) -> None:
        assert accepted.overlay.exact
        assert await entries(accepted.elsewhere, "a") == ()
        await publish(accepted, PLAIN)
        assert len(await entries(accepted.elsewhere, "a")) == 1
        await ack_all(accepted, floor=4)
        assert await entries(accepted.elsewhere, "a") == ()
        assert (await view(accepted.elsewhere, "a")).floor >= 4

    async def test_an_entry_is_there_as_soon_as_its_publish_has_returned(self, accepted: Accepted) -> None:
        await publish(accepted, PLAIN)
        key = key_of_envelope("plain")
        assert await entries(accepted.overlay, "a") == (Entry(key, 3),)
        assert await entries(accepted.overlay, "b") == (Entry(key, 1),)
        assert await entries(accepted.overlay, "c") == ()

    async def test_ids_are_kept_apart_and_make_an_entry_late(self, accepted: Accepted) -> None:
        await publish(accepted, KEYED)
        key = key_of_envelope("keyed")
        assert await entries(accepted.overlay, "a") == (Entry(key, 1, ((key_of_increment("a", "x"), 5),), late=True),)
        assert await entries(accepted.overlay, "c") == (Entry(key, 0, ((key_of_increment("c", "y"), 7),), late=True),)

    async def test_an_envelope_under_a_clients_key_is_late(self, accepted: Accepted) -> None:
        await publish(accepted, WHOLE)
        assert await entries(accepted.overlay, "a") == (Entry(key_of_envelope("key-1"), 9, (), late=True),)

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
        await ack_all(accepted, floor=1)
        assert await entries(accepted.overlay, "a") == ()

    async def test_an_ack_raises_the_floor_in_the_same_step(self, accepted: Accepted) -> None:
        await publish(accepted, PLAIN)
        before = (await view(accepted.overlay, "a")).floor
        await ack_all(accepted, floor=before + 7)
        assert (await view(accepted.overlay, "a")).floor >= before + 7
        assert (await view(accepted.overlay, "a")).entries == ()

    async def test_the_floor_rises_for_counters_that_were_never_looked_at(self, accepted: Accepted) -> None:
        """Somebody may hold a base of them all the same."""
        await view(accepted.overlay, "z")
        await publish(accepted, PLAIN)
        await ack_all(accepted, floor=5)
        assert (await view(accepted.overlay, "b")).floor >= 5

    async def test_the_floor_never_falls(self, accepted: Accepted) -> None:
        for floor in (9, 3):
            await publish(accepted, PLAIN)
            await ack_all(accepted, floor)
        assert (await view(accepted.overlay, "a")).floor >= 9

    async def test_a_stale_ack_takes_no_entry(self, accepted: Accepted) -> None:
        await publish(accepted, PLAIN)
        (held,) = await pull(accepted)
        await accepted.subscription.give_back([held.token])
        await pull(accepted)
        await accepted.subscription.ack([held.token], floor=5)
        assert len(await entries(accepted.overlay, "a")) == 1

    async def test_what_is_buried_stays_pending(self, accepted: Accepted) -> None:
        """It was accepted, and it is not applied."""
        await publish(accepted, PLAIN)
        (held,) = await pull(accepted)
        await accepted.subscription.bury(held, "because")
        assert len(await entries(accepted.overlay, "a")) == 1
        assert len(await entries(accepted.elsewhere, "a")) == 1

    async def test_what_nobody_can_read_is_no_entry(self, accepted: Accepted) -> None:
        await accepted.publisher.publish([Message(b"rubbish"), encode(PLAIN)])
        assert len(await entries(accepted.overlay, "a")) == 1

    async def test_equal_versions_mean_equal_views(self, accepted: Accepted) -> None:
        seen: dict[int, View] = {}
        for step in range(6):
            for counter in ("a", "b", "never"):
                one = await view(accepted.overlay, counter)
                if counter != "never":
                    known = seen.setdefault(one.version, one)
                    assert (known.entries, known.floor) == (one.entries, one.floor)
            if step % 2:
                await ack_all(accepted, floor=step)
            else:
                await publish(accepted, PLAIN)

    async def test_names_are_those_with_an_entry(self, accepted: Accepted) -> None:
        await publish(accepted, PLAIN, KEYED)
        assert sorted(await accepted.overlay.names("")) == ["a", "b", "c"]
        assert sorted(await accepted.overlay.names("b")) == ["b"]
        await ack_all(accepted, floor=1)
        assert [*await accepted.overlay.names("")] == []

    async def test_holds_says_which_envelopes_are_there(self, accepted: Accepted) -> None:
        keys = [key_of_envelope(name) for name in ("plain", "keyed")]
        await publish(accepted, PLAIN)
        assert set(await accepted.overlay.holds(keys)) == {keys[0]}
        await ack_all(accepted, floor=1)
        assert not await accepted.overlay.holds(keys)

    async def test_the_second_of_one_key_is_no_entry_while_the_first_is_there(self, accepted: Accepted) -> None:
        """The first body wins."""
        other = Envelope("key-1", {"a": 100}, {}, (), 2, retried=True)
        await publish(accepted, WHOLE)
        await publish(accepted, other)
        assert [entry.delta for entry in await entries(accepted.overlay, "a")] == [9]

    async def test_a_restart_changes_nothing(self, accepted: Accepted) -> None:
        await publish(accepted, PLAIN)
        await ack_all(accepted, floor=6)
        await publish(accepted, KEYED)
        before = await view(accepted.overlay, "a")
        after = await view(await accepted.restarted(), "a")
        assert (after.entries, after.floor) == (before.entries, before.floor)

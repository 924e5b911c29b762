"""The contract of Publisher and Subscription."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from shared.model.buckets import Instant
from shared.model.errors import OverloadedError, StoodStillError
from shared.model.words import Delivery, Message
from shared.ports.broker import Publisher, Subscription
from tests.world.manual_clock import ManualClock

MANY = 1_000
BYTES = 10**7
LONG = 5.0
"""Seconds that a pull may wait for something that comes."""


async def at_once() -> None:
    """No time passes."""


@dataclass
class Broker:
    """An adapter, its broker empty at first."""

    publisher: Publisher
    subscription: Subscription
    other: Subscription
    """Of another flusher."""
    lapse: Callable[[], Awaitable[None]]
    """Let all leases run out, if they have not been extended by an hour."""
    buried: Callable[[], Awaitable[list[tuple[bytes, str]]]]
    """Data and reasons of the dead letters."""
    tiny: Publisher
    """Takes 2,000 bytes until they are applied."""
    linger: Callable[[], Awaitable[None]] = at_once
    """Let much of a lease's time pass, but not all of it."""


def message(number: int) -> Message:
    return Message(b'{"counter":"a","delta":%d}' % number, {"number": str(number)})


async def pull(subscription: Subscription, limit: int = MANY, wait: float = 0.0) -> list[Delivery]:
    return [*await subscription.pull(limit, BYTES, wait)]


async def pull_all(subscription: Subscription, count: int) -> list[Delivery]:
    """As many as `count`, in as many pulls as it takes."""
    deliveries: list[Delivery] = []
    while len(deliveries) < count:
        some = await pull(subscription, wait=LONG)
        assert some, f"{len(deliveries)} of {count} came"
        deliveries += some
    return deliveries


async def leased(broker: Broker, *numbers: int) -> list[Delivery]:
    """Messages of these numbers, which a flusher holds."""
    await broker.publisher.publish([message(number) for number in numbers])
    return await pull_all(broker.subscription, len(numbers))


def turning(clock: ManualClock, seconds: float) -> Callable[[], Awaitable[None]]:
    """So much time passes when it is called."""

    async def turn() -> None:
        clock.turn(seconds)

    return turn


def tokens(deliveries: list[Delivery]) -> list[str]:
    return [delivery.token for delivery in deliveries]


def numbers(deliveries: list[Delivery]) -> list[int]:
    return sorted(int(delivery.message.attributes["number"]) for delivery in deliveries)


class BrokerContract:
    """Inherit it and say what `broker` is."""

    async def test_what_is_published_is_delivered_as_it_was(self, broker: Broker) -> None:
        odd = Message(b"\x00\xff\n", {"number": "1", "ü": "\N{SNOWMAN}"})
        await broker.publisher.publish([odd])
        (delivery,) = await pull_all(broker.subscription, 1)
        assert delivery.message.data == odd.data
        assert delivery.message.attributes == odd.attributes
        assert delivery.published > 10**12
        assert delivery.message_id

    async def test_all_messages_of_a_publish_are_delivered(self, broker: Broker) -> None:
        deliveries = await leased(broker, *range(50))
        assert numbers(deliveries) == list(range(50))
        assert len({delivery.message_id for delivery in deliveries}) == 50

    async def test_concurrent_holders_never_hold_one_message(self, broker: Broker) -> None:
        await broker.publisher.publish([message(number) for number in range(200)])
        some = await asyncio.gather(
            *(pull(holder, limit=7) for _ in range(20) for holder in (broker.subscription, broker.other))
        )
        held = [delivery.message_id for deliveries in some for delivery in deliveries]
        assert len(held) == len(set(held))

    async def test_a_pull_takes_no_more_than_its_limit(self, broker: Broker) -> None:
        await broker.publisher.publish([message(number) for number in range(10)])
        first = await pull(broker.subscription, limit=4, wait=LONG)
        assert 1 <= len(first) <= 4
        rest = await pull_all(broker.subscription, 10 - len(first))
        assert numbers(first + rest) == list(range(10))

    async def test_a_pull_takes_no_more_bytes_than_allowed_but_one_message_at_least(self, broker: Broker) -> None:
        big = [Message(b" " * 1_000, {"number": str(number)}) for number in range(5)]
        await broker.publisher.publish(big)
        held: list[Delivery] = []
        for max_bytes, most in ((2_500, 2), (10, 1), (10**6, 4)):
            some = await broker.subscription.pull(MANY, max_bytes, LONG)
            assert 1 <= len(some) <= most
            held += some
        held += await pull_all(broker.subscription, 5 - len(held))
        assert numbers(held) == list(range(5))

    async def test_a_pull_waits_for_what_comes(self, broker: Broker) -> None:
        waiting = asyncio.create_task(pull(broker.subscription, wait=LONG))
        await asyncio.sleep(0)
        await broker.publisher.publish([message(1)])
        assert numbers(await waiting) == [1]

    async def test_a_pull_of_nothing_waits_its_time(self, broker: Broker) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert await pull(broker.subscription, wait=0.05) == []
        assert loop.time() - begun >= 0.04

    async def test_published_is_when_it_was_published(self, broker: Broker) -> None:
        (first,) = await leased(broker, 1)
        await broker.subscription.ack([first.token], floor=Instant(1))
        await broker.lapse()
        (second,) = await leased(broker, 2)
        assert 10**12 < first.published < second.published < 10**13

    async def test_each_message_has_an_id_of_its_own_for_ever(self, broker: Broker) -> None:
        """Receipts of foreign messages are made from it."""
        seen = set()
        for number in range(5):
            (held,) = await leased(broker, number)
            seen.add(held.message_id)
            await broker.subscription.ack([held.token], floor=Instant(1))
        assert len(seen) == 5

    async def test_equal_messages_are_two(self, broker: Broker) -> None:
        await broker.publisher.publish([message(1), message(1)])
        await broker.publisher.publish([message(1)])
        assert numbers(await pull_all(broker.subscription, 3)) == [1, 1, 1]

    async def test_nothing_is_lost_between_many_publishers_and_holders(self, broker: Broker) -> None:
        """Some acknowledge, some give back, and every message is acknowledged once in the end."""
        done: list[int] = []

        async def publish(begin: int) -> None:
            for number in range(begin, begin + 25):
                await broker.publisher.publish([message(number)])

        async def hold(subscription: Subscription, keep: int) -> None:
            while len(done) < 200:
                held = await pull(subscription, limit=9, wait=0.01)
                await subscription.give_back(tokens(held[keep:]))
                await subscription.ack(tokens(held[:keep]), floor=Instant(1))
                done.extend(numbers(held[:keep]))

        async with asyncio.timeout(60):
            await asyncio.gather(
                *(publish(begin) for begin in range(0, 200, 25)), hold(broker.subscription, 4), hold(broker.other, 9)
            )
        assert sorted(done) == list(range(200))

    async def test_too_much_that_waits_is_refused_whole_until_it_is_applied(self, broker: Broker) -> None:
        half = Message(b" " * 1_200, {"number": "1"})
        await broker.tiny.check()
        await broker.tiny.publish([half])
        with pytest.raises(OverloadedError):
            await broker.tiny.publish([half, half])
        held = await pull_all(broker.subscription, 1)
        assert await pull(broker.subscription) == []
        await broker.subscription.ack(tokens(held), floor=Instant(1))
        await broker.tiny.publish([half])
        assert len(await pull_all(broker.subscription, 1)) == 1

    async def test_what_is_buried_does_not_fill_the_broker(self, broker: Broker) -> None:
        """It is not waiting, and it may stay there for long."""
        await broker.tiny.publish([Message(b" " * 1_900, {"number": "1"})])
        (held,) = await pull_all(broker.subscription, 1)
        await broker.subscription.bury(held, "because")
        await broker.tiny.check()
        await broker.tiny.publish([Message(b" " * 1_900, {"number": "2"})])
        assert numbers(await pull_all(broker.subscription, 1)) == [2]

    async def test_what_must_not_happen_any_more_is_not_published(self, broker: Broker) -> None:
        def late() -> None:
            raise StoodStillError("a week has passed")

        with pytest.raises(StoodStillError, match="a week"):
            await broker.publisher.publish([message(1), message(2)], late)
        await broker.publisher.publish([message(3)])
        assert numbers(await pull_all(broker.subscription, 1)) == [3]

    async def test_check_says_what_a_publish_would_say(self, broker: Broker) -> None:
        await broker.tiny.publish([Message(b" " * 1_800, {"number": "1"})])
        with pytest.raises(OverloadedError):
            await broker.tiny.check()
        await broker.subscription.ack(tokens(await pull_all(broker.subscription, 1)), floor=Instant(1))
        await broker.tiny.check()
        assert await pull(broker.subscription) == []

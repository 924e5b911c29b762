"""What Pub/Sub's adapter does beyond the contract, on the emulator."""

import asyncio

import pytest
from google.cloud.pubsub_v1 import PublisherClient

from shared.model.buckets import BrokerMillis, Instant
from shared.model.errors import TooLargeError, UnkeptError
from shared.model.words import Delivery, Envelope, Increment, Message
from shared.pubsub import publisher
from shared.pubsub.client import PubsubPlace, SetupError
from shared.pubsub.publisher import FRESH
from shared.wire.codec import decode, encode
from tests.contracts.broker import BYTES, LONG, MANY, message, numbers, pull, pull_all, tokens
from tests.emulators.pubsub_fixtures import LEASE, Pubsub

MB = 1_000_000


async def test_many_messages_go_in_requests_of_a_thousand(pubsub: Pubsub) -> None:
    client = pubsub.client()
    await pubsub.publisher(client).publish([message(number) for number in range(2_500)])
    assert [count for count, _ in client.sent] == [1_000, 1_000, 500]
    assert numbers(await pull_all(pubsub.subscription(), 2_500)) == list(range(2_500))


async def test_large_messages_go_in_requests_below_ten_megabytes(pubsub: Pubsub) -> None:
    client = pubsub.client()
    large = [Message(bytes([number]) * MB, {"number": str(number)}) for number in range(25)]
    await pubsub.publisher(client).publish(large)
    assert [count for count, _ in client.sent] == [9, 9, 7]
    assert all(size < 10 * MB for _, size in client.sent)
    held = await pull_all(pubsub.subscription(), 25)
    assert {delivery.message.data for delivery in held} == {one.data for one in large}


async def test_a_message_too_large_for_any_request_is_refused_before_anything_is_sent(pubsub: Pubsub) -> None:
    client = pubsub.client()
    with pytest.raises(TooLargeError, match="Pub/Sub takes at most"):
        await pubsub.publisher(client).publish([message(1), Message(b" " * 10 * MB)])
    assert not client.sent


async def test_the_largest_message_is_carried(pubsub: Pubsub) -> None:
    largest = Message(b" " * (publisher.MOST_BYTES_PUBLISHED - 100), {"number": "1"})
    await pubsub.publisher().publish([largest])
    (held,) = await pull_all(pubsub.subscription(), 1)
    assert held.message == largest


async def test_what_was_pulled_beyond_the_limits_waits_for_the_next_pull(pubsub: Pubsub) -> None:
    """They are ten times as large as it expects at first."""
    client = pubsub.client()
    await pubsub.publisher().publish([Message(b" " * 10_000, {"number": str(n)}) for n in range(10)])
    subscription = pubsub.subscription(client, hold=60.0)
    held = [*await subscription.pull(MANY, 25_000, LONG)]
    assert 1 <= len(held) <= 2
    assert len(held) + len(subscription._pulled) == 10
    while len(held) < 10:
        some = await subscription.pull(3, 10**6, LONG)
        assert 1 <= len(some) <= 3
        held += some
    assert numbers(held) == list(range(10))
    assert len(client.asked) == 1
    assert not client.deadlines


async def test_what_nobody_takes_is_given_back(pubsub: Pubsub) -> None:
    await pubsub.publisher().publish([message(number) for number in range(10)])
    client = pubsub.client()
    subscription = pubsub.subscription(client, hold=0.01)
    subscription._typical = 1.0
    mine = [*await subscription.pull(MANY, 100, LONG)]
    assert 1 <= len(mine) <= 5
    others = await pull_all(pubsub.subscription(), 10 - len(mine))
    assert numbers([*mine, *others]) == list(range(10))
    assert all(seconds == 0 for _, seconds in client.deadlines)
    assert sum(count for count, _ in client.deadlines) == 10 - len(mine)


async def test_pulls_that_are_outstanding_ask_together_for_no_more_than_there_is_room(pubsub: Pubsub) -> None:
    client = pubsub.client()
    subscription = pubsub.subscription(client, outstanding=4, linger=1.0)
    await pubsub.publisher().publish([message(number) for number in range(40)])
    held: list[Delivery] = []
    while len(held) < 40:
        held += await subscription.pull(10, BYTES, LONG)
        assert subscription._asked <= 10
        assert sum(one.message.ByteSize() for one in subscription._pulled) < 10 * 100
    assert len(subscription._pulls) <= 4
    assert numbers(held) == list(range(40))


async def test_several_pulls_are_outstanding_while_there_is_something_to_pull(pubsub: Pubsub) -> None:
    subscription = pubsub.subscription(outstanding=4, linger=1.0)
    await pubsub.publisher().publish([message(number) for number in range(10)])
    most = 0
    held: list[Delivery] = []
    while len(held) < 10:
        held += await subscription.pull(2, BYTES, LONG)
        most = max(most, subscription._width)
    assert most == 4


async def test_leases_are_as_long_as_the_caller_counts_on(pubsub: Pubsub) -> None:
    """Though those of the subscription are shorter."""
    client = pubsub.client()
    await pubsub.publisher().publish([message(1)])
    await pull_all(pubsub.subscription(client, lease=60.0), 1)
    assert client.deadlines == [(1, 60)]
    await pubsub.publisher().publish([message(2)])
    await pull_all(pubsub.subscription(client, lease=LEASE), 1)
    assert client.deadlines == [(1, 60)]


async def test_leases_are_settled_in_batches_and_a_strange_one_spoils_none(pubsub: Pubsub) -> None:
    client = pubsub.client()
    subscription = pubsub.subscription(client)
    await pubsub.publisher().publish([message(number) for number in range(2_100)])
    held = tokens(await pull_all(subscription, 2_100))
    client.deadlines.clear()
    await subscription.extend(held, 30)
    assert sorted(client.deadlines) == [(100, 30), (1_000, 30), (1_000, 30)]
    await subscription.ack([*held[:1_500], "nobody's", *held[1_500:]], floor=Instant(1))
    await pubsub.lapse()
    assert await pull(subscription) == []


async def test_a_buried_message_keeps_what_it_was(pubsub: Pubsub) -> None:
    foreign = Message(b"{", {"number": "1", "ce-id": "7"})
    await pubsub.publisher().publish([foreign])
    subscription = pubsub.subscription()
    (held,) = await pull_all(subscription, 1)
    await subscription.bury(held, "the data is not JSON")
    (letter,) = await pubsub.dead_letters()
    assert letter.data == foreign.data
    assert dict(letter.attributes) == {
        "number": "1",
        "ce-id": "7",
        publisher.REASON: "the data is not JSON",
        publisher.MESSAGE_ID: held.message_id,
        publisher.PUBLISHED: str(held.published),
        publisher.TOPIC: pubsub.place.topic,
    }


@pytest.mark.parametrize(("size", "attributes"), [(publisher.MOST_BYTES_PUBLISHED - 800, 49), (10, 99)])
async def test_a_message_as_large_as_can_be_can_be_buried(pubsub: Pubsub, size: int, attributes: int) -> None:
    huge = Message(b" " * size, {"number": "1", **{f"key-{n}": "v" for n in range(attributes)}})
    await pubsub.publisher().publish([huge])
    subscription = pubsub.subscription()
    (held,) = await pull_all(subscription, 1)
    await subscription.bury(held, "ü" * 2_000)
    (letter,) = await pubsub.dead_letters()
    assert letter.attributes[publisher.MESSAGE_ID] == held.message_id
    assert letter.attributes[publisher.CUT] == str(size)
    assert letter.attributes[publisher.REASON] == "ü" * 512
    assert len(letter.data) == size if size == 10 else size - 1_000 < len(letter.data) < size
    assert len(letter.attributes) <= publisher.MOST_ATTRIBUTES
    assert await pull(subscription) == []


async def test_plain_messages_of_foreign_publishers_are_counted(
    pubsub: Pubsub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published by Google's own client, as somebody else would."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub.host)

    def publish() -> list[str]:
        foreign = PublisherClient()
        sent = [
            foreign.publish(pubsub.place.topic, b'{"counter": "a", "delta": 2}'),
            foreign.publish(pubsub.place.topic, b'{"counters": {"a": 3, "b": -1}}'),
            foreign.publish(pubsub.place.topic, b"", counter="c", delta="4"),
            foreign.publish(pubsub.place.topic, b'{"counter":"d","id":"x"}', **{"ce-source": "s", "ce-id": "9"}),
        ]
        ids = [one.result() for one in sent]
        foreign.stop()
        foreign.transport.close()
        return ids

    ids = await asyncio.to_thread(publish)
    held = await pull_all(pubsub.subscription(), 4)
    place = "pubsub://p/t"
    envelopes = {delivery.message_id: decode(delivery, place)[0] for delivery in held}
    assert [envelopes[one].sums for one in ids] == [{"a": 2}, {"a": 3, "b": -1}, {"c": 4}, {}]
    assert envelopes[ids[3]].keyed == (Increment("d", 1, "x"),)
    assert envelopes[ids[3]].id == "ce:1:s9"
    assert envelopes[ids[0]].id == f"msg:{place}:{ids[0]}:{envelopes[ids[0]].created}"


async def test_an_envelope_comes_back_as_it_was(pubsub: Pubsub) -> None:
    envelope = Envelope("e-1", {"a": 5, "ü": -1}, {"a": 3}, (Increment("b", 2, "i"),), 1_700_000_000_000, retried=True)
    await pubsub.publisher().publish([encode(envelope)])
    (held,) = await pull_all(pubsub.subscription(), 1)
    assert decode(held, "any") == (envelope,)


async def test_closing_gives_back_all_that_was_not_returned(pubsub: Pubsub) -> None:
    """Also what comes while it closes: leases are longer than this test waits."""
    await pubsub.publisher().publish([message(number) for number in range(100)])
    subscription = pubsub.subscription(hold=60.0, linger=0.5)
    subscription._typical = 1.0
    mine = [*await subscription.pull(MANY, 1_000, LONG)]
    assert len(subscription._pulled) + len(mine) == 100
    waiting = asyncio.create_task(subscription.pull(MANY, 1_000, LONG))
    closing = asyncio.create_task(subscription.close())
    for begin in range(100, 200, 10):
        await pubsub.publisher().publish([message(number) for number in range(begin, begin + 10)])
    await closing
    mine += await waiting
    others = await pull_all(pubsub.subscription(), 200 - len(mine))
    assert numbers([*mine, *others]) == list(range(200))
    assert await subscription.pull(MANY, BYTES, LONG) == ()


async def test_pulls_that_are_outstanding_at_the_close_swallow_nothing(pubsub: Pubsub) -> None:
    """The emulator goes on to feed one call in three that was cancelled, so none may be."""
    closing = [pubsub.subscription(linger=1.5) for _ in range(8)]
    await asyncio.gather(*(pull(subscription) for subscription in closing))
    assert all(subscription._pulls for subscription in closing)
    closed = asyncio.gather(*(subscription.close() for subscription in closing))
    publisher = pubsub.publisher()
    for number in range(50):
        await publisher.publish([message(number)])
    await closed
    assert not any(client.cancelled for client in pubsub.clients)
    assert numbers(await pull_all(pubsub.subscription(), 50)) == list(range(50))


async def test_what_is_missing_is_said_with_what_to_do(empty_pubsub: Pubsub) -> None:
    publisher, subscription = empty_pubsub.publisher(), empty_pubsub.subscription()
    held = Delivery("t", message(1), "1", BrokerMillis(1))
    for call in (
        publisher.publish([message(1)]),
        subscription.pull(1, 1, 0.0),
        subscription.ack(["t"], Instant(1)),
    ):
        with pytest.raises(SetupError, match="countersink provision") as caught:
            await call
        assert caught.value.__cause__ is not None
    with pytest.raises(UnkeptError, match="countersink provision"):
        await subscription.bury(held, "because")


async def test_check_asks_unless_a_publish_has_just_succeeded(pubsub: Pubsub) -> None:
    publisher = pubsub.publisher()
    await publisher.check()
    await publisher.publish([message(1)])
    nowhere = pubsub.publisher()
    nowhere._topic += "-gone"
    nowhere._good = asyncio.get_running_loop().time() - FRESH / 2
    await nowhere.check()
    nowhere._good = asyncio.get_running_loop().time() - FRESH
    with pytest.raises(SetupError):
        await nowhere.check()


async def test_attempts_are_remembered_of_so_many_messages(pubsub: Pubsub) -> None:
    subscription = pubsub.subscription()
    subscription._attempts._most = 2
    await pubsub.publisher().publish([message(1)])
    attempts: list[int] = []
    for others in (0, 0, 2):
        (held,) = await pull_all(subscription, 1)
        attempts.append(held.attempt)
        await pubsub.publisher().publish([message(2)] * others)
        await subscription.ack(tokens(await pull_all(subscription, others)), Instant(1))
        await subscription.give_back([held.token])
    (held,) = await pull_all(subscription, 1)
    assert [*attempts, held.attempt] == [1, 2, 3, 1]


def test_names_are_made_of_ids() -> None:
    place = PubsubPlace("p", "t", "s")
    assert place.dead_topic == "projects/p/topics/t-dead-letters"
    assert place.dead_subscription == "projects/p/subscriptions/s-dead-letters"
    assert (place.tasks.topic, place.tasks.subscription) == (
        "projects/p/topics/t-tasks",
        "projects/p/subscriptions/s-tasks",
    )

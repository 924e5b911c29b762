"""The contract of brokers on the Pub/Sub emulator, and what holds where Pub/Sub can't keep a sentence of it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.model.buckets import BrokerMillis
from shared.model.errors import OverloadedError
from shared.model.words import Delivery, Message
from shared.pubsub import subscription as pubsub_letters
from shared.pubsub.client import TIMEOUT
from shared.pubsub.publisher import MOST_BYTES_PUBLISHED, REASON, PubsubPublisher, dead_letter, to_wire
from shared.pubsub.subscription import PubsubDeadLetters
from shared.runtime.clock import SystemClock
from tests.contracts.broker import Broker, BrokerContract, message, pull_all
from tests.contracts.leases import LeaseContract
from tests.contracts.letters import Buried, LettersContract, bury, data_of, look, through
from tests.emulators.pubsub_fixtures import Pubsub, WatchedClient


class TestPubsubBroker(BrokerContract, LeaseContract):
    @pytest.fixture
    async def broker(self, pubsub: Pubsub) -> Broker:
        async def buried() -> list[tuple[bytes, str]]:
            return [(letter.data, letter.attributes[REASON]) for letter in await pubsub.dead_letters()]

        return Broker(
            pubsub.publisher(),
            pubsub.subscription(),
            pubsub.subscription(),
            pubsub.lapse,
            buried,
            pubsub.publisher(max_in_flight_bytes=2_000),
        )

    async def test_a_lapsed_lease_brings_the_message_again_with_another_token(self, broker: Broker) -> None:
        """To another process it is a first attempt: Pub/Sub numbers them only under a dead-letter policy."""
        await broker.publisher.publish([message(1)])
        (first,) = await pull_all(broker.subscription, 1)
        await broker.lapse()
        (again,) = await pull_all(broker.other, 1)
        assert again.message == first.message
        assert again.message_id == first.message_id
        assert again.published == first.published
        assert again.token != first.token
        assert (first.attempt, again.attempt) == (1, 1)
        await broker.lapse()
        (third,) = await pull_all(broker.subscription, 1)
        assert third.attempt == 2

    async def test_what_is_given_back_comes_again_at_once(self, broker: Broker) -> None:
        """The same, with attempts as above."""
        await broker.publisher.publish([message(1), message(2)])
        held = await pull_all(broker.subscription, 2)
        await broker.subscription.give_back([held[0].token])
        (again,) = await pull_all(broker.other, 1)
        assert again.message_id == held[0].message_id
        await broker.other.give_back([again.token])
        (again,) = await pull_all(broker.subscription, 1)
        assert again.message_id == held[0].message_id
        assert again.attempt == 2

    async def test_too_much_that_waits_is_refused_whole_until_it_is_applied(self, broker: Broker) -> None:
        """Until it is published: how much is not applied Pub/Sub does not tell, and it has room for all."""
        half = Message(b" " * 1_200, {"number": "1"})
        client = client_of(broker.tiny)
        client.gate.clear()
        first = asyncio.create_task(broker.tiny.publish([half]))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await broker.tiny.publish([half])
        client.gate.set()
        await first
        await broker.tiny.publish([half])
        await pull_all(broker.subscription, 2)
        assert [number for number, _ in client.sent] == [1, 1]

    async def test_check_says_what_a_publish_would_say(self, broker: Broker) -> None:
        client = client_of(broker.tiny)
        await broker.tiny.check()
        client.gate.clear()
        first = asyncio.create_task(broker.tiny.publish([Message(b" " * 2_500, {"number": "1"})]))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await broker.tiny.check()
        client.gate.set()
        await first
        await broker.tiny.check()
        assert len(await pull_all(broker.subscription, 1)) == 1


class TestPubsubDeadLetters(LettersContract):
    @pytest.fixture
    async def buried(self, pubsub: Pubsub) -> AsyncIterator[Buried]:
        client = pubsub.client()
        ways: list[PubsubDeadLetters] = []

        def letters() -> PubsubDeadLetters:
            ways.append(PubsubDeadLetters(client, pubsub.place, lease=60, clock=SystemClock(), wait=0.2))
            return ways[-1]

        yield Buried(pubsub.publisher(), pubsub.subscription(), letters)
        for way in ways:
            await way.close()

    async def test_what_one_holds_another_does_not_see_until_it_is_given_back(self, buried: Buried) -> None:
        await bury(buried, message(1))
        first, second = buried.letters(), buried.letters()
        assert len(await through(first)) == 1
        assert await through(second) == []
        await first.close()
        assert len(await through(second)) == 1

    async def test_what_is_buried_twice_is_two_letters_of_one_message(self, buried: Buried) -> None:
        """Cut off between the publishing and the ack, or found dead by two flushers."""
        (held,) = await bury(buried, message(1))
        await buried.subscription.bury(held, "again")
        found = await look(buried)
        assert sorted(letter.reason for letter in found) == ["again", "because"]
        assert {letter.delivery.message_id for letter in found} == {held.message_id}

    async def test_what_was_buried_while_one_goes_through_is_found(self, buried: Buried) -> None:
        await bury(buried, message(1))
        letters = buried.letters()
        assert len(await through(letters)) == 1
        await bury(buried, message(2))
        assert data_of(await through(letters)) == [message(2).data]

    async def test_it_ends_though_more_is_buried_all_the_time(self, buried: Buried) -> None:
        await bury(buried, *map(message, range(3)))
        letters, found = buried.letters(), 0
        while some := await letters.pull(100, 10**6):
            found += len(some)
            await bury(buried, message(3 + found))
        assert found >= 3

    async def test_what_comes_again_while_it_is_held_is_not_handed_out_again(
        self, buried: Buried, pubsub: Pubsub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its lease ran out, since this takes long."""
        monkeypatch.setattr(pubsub_letters, "MOST_ROUNDS", 2)
        await bury(buried, message(1), message(2))
        letters = PubsubDeadLetters(pubsub.client(), pubsub.place, lease=1, clock=SystemClock(), wait=1.5)
        found = await through(letters)
        assert data_of(found) == [message(1).data, message(2).data]
        await letters.close()
        assert len(await look(buried)) == 2

    async def test_what_was_not_buried_by_a_flusher_or_not_whole_says_so(self, buried: Buried, pubsub: Pubsub) -> None:
        client, topic = pubsub.client(), pubsub.place.dead_topic
        stranger = to_wire(Message(b'{"counter":"a"}'))
        await client.publish(topic, [stranger], TIMEOUT)
        (letter,) = await look(buried)
        assert letter.flaw == "it was not put here by a flusher"
        held = Delivery("", Message(b" " * (MOST_BYTES_PUBLISHED - 100)), "17", BrokerMillis(5))
        await client.publish(topic, [to_wire(dead_letter(held, "long", pubsub.place.topic))], TIMEOUT)
        await client.publish(topic, [to_wire(dead_letter(held, "r", "other"))], TIMEOUT)
        odd = Delivery("", Message(b'{"counter":"a"}', {"countersink-cut": "3"}), "18", BrokerMillis(5))
        await client.publish(topic, [to_wire(dead_letter(odd, "r", pubsub.place.topic))], TIMEOUT)
        seen = await look(buried)
        assert [letter.flaw for letter in seen if letter.delivery.message_id == "18"] == [None]
        flaws = [letter.flaw or "" for letter in seen if letter.delivery.message_id == "17"]
        assert "it was published to another topic: other" in flaws
        assert any(f"of {MOST_BYTES_PUBLISHED - 100} bytes fitted here" in flaw for flaw in flaws)


def client_of(publisher: object) -> WatchedClient:
    assert isinstance(publisher, PubsubPublisher)
    assert isinstance(publisher._client, WatchedClient)
    return publisher._client

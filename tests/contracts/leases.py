"""The contract of leases: one holder at a time, and what a lost lease can still do, which is nothing."""

import asyncio

from shared.model.buckets import Instant
from shared.model.words import Message
from tests.contracts.broker import Broker, leased, message, numbers, pull, pull_all, tokens


class LeaseContract:
    """Inherit it beside `BrokerContract`."""

    async def test_an_ack_forgets_only_its_own_though_it_is_named_twice(self, broker: Broker) -> None:
        held = await leased(broker, 1, 2)
        await broker.subscription.ack([held[0].token, held[0].token], floor=Instant(1))
        await broker.lapse()
        (again,) = await pull_all(broker.subscription, 1)
        assert again.message_id == held[1].message_id

    async def test_a_lapsed_lease_brings_the_message_again_with_another_token(self, broker: Broker) -> None:
        (first,) = await leased(broker, 1)
        await broker.lapse()
        (again,) = await pull_all(broker.other, 1)
        assert again.message == first.message
        assert again.message_id == first.message_id
        assert again.published == first.published
        assert again.token != first.token
        assert (first.attempt, again.attempt) == (1, 2)

    async def test_an_ack_of_a_lost_lease_acks_nothing(self, broker: Broker) -> None:
        (stale,) = await leased(broker, 1)
        await broker.lapse()
        await pull_all(broker.other, 1)
        await broker.subscription.ack([stale.token], floor=Instant(1))
        await broker.lapse()
        assert len(await pull_all(broker.subscription, 1)) == 1

    async def test_a_lost_lease_is_neither_extended_nor_given_back(self, broker: Broker) -> None:
        (stale,) = await leased(broker, 1)
        await broker.lapse()
        await pull_all(broker.other, 1)
        await broker.subscription.give_back([stale.token])
        assert await pull(broker.subscription) == []
        await broker.subscription.extend([stale.token], 3_600)
        await broker.lapse()
        assert len(await pull_all(broker.subscription, 1)) == 1

    async def test_what_is_given_back_comes_again_at_once(self, broker: Broker) -> None:
        held = await leased(broker, 1, 2)
        await broker.subscription.give_back([held[0].token])
        (again,) = await pull_all(broker.other, 1)
        assert again.message_id == held[0].message_id
        assert again.attempt == 2

    async def test_what_was_given_back_is_not_acknowledged_any_more(self, broker: Broker) -> None:
        held = await leased(broker, 1)
        await broker.subscription.give_back(tokens(held))
        await broker.subscription.ack(tokens(held), floor=Instant(1))
        assert len(await pull_all(broker.other, 1)) == 1

    async def test_an_extended_lease_does_not_lapse(self, broker: Broker) -> None:
        kept, lost = await leased(broker, 1, 2)
        await broker.subscription.extend([kept.token], 600)
        await broker.lapse()
        (again,) = await pull_all(broker.other, 1)
        assert again.message_id == lost.message_id
        await broker.subscription.ack([kept.token], floor=Instant(1))

    async def test_a_lease_holds_for_its_time(self, broker: Broker) -> None:
        held = await leased(broker, 1)
        await broker.linger()
        assert await pull(broker.other) == []
        await broker.subscription.ack(tokens(held), floor=Instant(1))
        await broker.lapse()
        assert await pull(broker.other) == []

    async def test_a_lease_can_be_cut_short(self, broker: Broker) -> None:
        held = await leased(broker, 1)
        await broker.subscription.extend(tokens(held), 3_600)
        await broker.subscription.extend(tokens(held), 0)
        assert numbers(await pull_all(broker.other, 1)) == [1]

    async def test_each_delivery_has_a_token_of_its_own_and_a_higher_attempt(self, broker: Broker) -> None:
        seen = await leased(broker, 1)
        for given_back in (True, False, True, True, False):
            if given_back:
                await broker.subscription.give_back([seen[-1].token])
            else:
                await broker.lapse()
            seen += await pull_all(broker.subscription, 1)
        assert len(set(tokens(seen))) == len(seen)
        attempts = [delivery.attempt for delivery in seen]
        assert attempts == sorted(set(attempts))
        assert attempts[0] == 1

    async def test_only_the_newest_of_many_leases_can_acknowledge(self, broker: Broker) -> None:
        seen = await leased(broker, 1)
        for _ in range(3):
            await broker.subscription.give_back([seen[-1].token])
            seen += await pull_all(broker.subscription, 1)
        await broker.subscription.ack(tokens(seen[:-1]), floor=Instant(1))
        await broker.subscription.give_back([seen[-1].token])
        seen += await pull_all(broker.subscription, 1)
        await broker.subscription.ack(tokens(seen), floor=Instant(1))
        await broker.lapse()
        assert await pull(broker.subscription) == []

    async def test_a_stale_token_does_not_spoil_the_others_of_its_ack(self, broker: Broker) -> None:
        held = await leased(broker, *range(3))
        await broker.subscription.give_back([held[1].token])
        await broker.subscription.ack(tokens(held), floor=Instant(1))
        await broker.lapse()
        assert [delivery.message_id for delivery in await pull_all(broker.other, 1)] == [held[1].message_id]
        assert await pull(broker.other) == []

    async def test_nothing_is_no_error(self, broker: Broker) -> None:
        await broker.publisher.publish([])
        await broker.subscription.ack([], floor=Instant(1))
        await broker.subscription.extend([], 10)
        await broker.subscription.give_back([])
        assert await pull(broker.subscription) == []

    async def test_what_is_acknowledged_is_beyond_its_token(self, broker: Broker) -> None:
        held = await leased(broker, 1)
        await broker.subscription.ack(tokens(held), floor=Instant(1))
        await broker.subscription.ack(tokens(held), floor=Instant(1))
        await broker.subscription.extend(tokens(held), 10)
        await broker.subscription.give_back(tokens(held))
        await broker.lapse()
        assert await pull(broker.subscription) == []

    async def test_a_lost_lease_buries_nothing(self, broker: Broker) -> None:
        """Whoever holds the message now decides."""
        (stale,) = await leased(broker, 1)
        await broker.subscription.give_back([stale.token])
        held = await pull_all(broker.other, 1)
        await broker.subscription.bury(stale, "because")
        await broker.other.give_back(tokens(held))
        assert numbers(await pull_all(broker.other, 1)) == [1]

    async def test_what_is_buried_is_beyond_its_token_and_keeps_its_reason(self, broker: Broker) -> None:
        (held,) = await leased(broker, 1)
        await broker.subscription.bury(held, "because")
        await broker.subscription.bury(held, "because")
        assert await pull(broker.subscription) == []
        await broker.subscription.give_back([held.token])
        await broker.subscription.extend([held.token], 0)
        await broker.subscription.ack([held.token], floor=Instant(1))
        await broker.lapse()
        assert await pull(broker.subscription) == []
        assert set(await broker.buried()) == {(held.message.data, "because")}

    async def test_a_waiting_pull_gets_what_is_given_back(self, broker: Broker) -> None:
        held = await leased(broker, 1)
        waiting = asyncio.create_task(pull_all(broker.other, 1))
        await asyncio.sleep(0)
        await broker.subscription.give_back(tokens(held))
        assert numbers(await waiting) == [1]

    async def test_redelivery_keeps_to_limit_and_bytes_too(self, broker: Broker) -> None:
        await broker.publisher.publish([Message(b" " * 1_000, {"number": str(number)}) for number in range(6)])
        await pull_all(broker.subscription, 4)
        await broker.lapse()
        held = [*await broker.subscription.pull(100, 2_500, 1.0)]
        assert 1 <= len(held) <= 2
        more = [*await broker.subscription.pull(1, 10**6, 1.0)]
        assert len(more) == 1
        held += [*more, *await pull_all(broker.other, 5 - len(held))]
        assert numbers(held) == list(range(6))

    async def test_what_comes_again_and_what_is_new_share_the_limits(self, broker: Broker) -> None:
        big = [Message(b" " * 1_000, {"number": str(number)}) for number in range(8)]
        await broker.publisher.publish(big[:2])
        held = await pull_all(broker.subscription, 2)
        await broker.publisher.publish(big[2:])
        await broker.subscription.give_back([held.pop().token])
        some = [*await broker.subscription.pull(100, 2_500, 1.0)]
        assert 1 <= len(some) <= 2
        held += some
        await broker.subscription.give_back([held.pop().token])
        some = [*await broker.subscription.pull(3, 10**6, 1.0)]
        assert 1 <= len(some) <= 3
        held += some
        held += await pull_all(broker.other, 8 - len(held))
        assert numbers(held) == list(range(8))


class OnceContract:
    """For a broker that can: it drops a second message of the same `once` while the first is there."""

    async def test_the_second_of_one_once_is_dropped_while_the_first_is_there(self, broker: Broker) -> None:
        first, second = (Message(b"{}", {"number": str(number)}, once="k") for number in (1, 2))
        other = Message(b"{}", {"number": "3"}, once="l")
        await broker.publisher.publish([first, second, other])
        await broker.publisher.publish([second, message(4)])
        held = await pull_all(broker.subscription, 3)
        assert numbers(held) == [1, 3, 4]
        await broker.publisher.publish([second])
        assert await pull(broker.subscription) == []

    async def test_of_one_once_from_many_processes_one_is_taken(self, broker: Broker) -> None:
        same = [Message(b"{}", {"number": str(number)}, once="k") for number in range(8)]
        await asyncio.gather(*((broker.publisher, broker.tiny)[n % 2].publish([same[n]]) for n in range(8)))
        assert len(await pull_all(broker.subscription, 1)) == 1
        assert await pull(broker.subscription) == []

    async def test_a_once_is_free_again_when_the_first_is_gone(self, broker: Broker) -> None:
        same = Message(b"{}", {"number": "1"}, once="k")
        await broker.publisher.publish([same])
        await broker.subscription.ack(tokens(await pull_all(broker.subscription, 1)), floor=Instant(1))
        await broker.publisher.publish([same])
        (held,) = await pull_all(broker.subscription, 1)
        await broker.subscription.bury(held, "because")
        await broker.publisher.publish([same])
        assert numbers(await pull_all(broker.subscription, 1)) == [1]

"""Brokers, and ways through their dead letters, with one mistake each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from shared.model.buckets import BEGINNING, BrokerMillis, Instant
from shared.model.errors import OverloadedError
from shared.model.words import Delivery, Letter, Message
from shared.ports.broker import Check
from tests.contracts.broken import Fault, before, calls, gives, nothing
from tests.world.memory.broker import MemoryBroker
from tests.world.memory.letters import MemoryDeadLetters

Right = Callable[..., Any]


def publishes(change: Callable[[Any, Sequence[Message]], Sequence[Message]]) -> Fault:
    """The broker publishes other messages than those which it was given."""
    return calls(publish=lambda broker, right, messages, check: right(change(broker, messages)))


def pulls(change: Callable[[Any, Delivery], Delivery]) -> Fault:
    """The broker hands out other deliveries."""
    return gives("pull", lambda broker, held, *_: [change(broker, one) for one in held])


def number_of(token: str) -> int:
    return int(token.partition(".")[0])


def _held(broker: MemoryBroker, token: str) -> Any:
    return broker._messages.get(number_of(token))


def _fits(deliveries: Sequence[Delivery], max_bytes: int) -> bool:
    return sum(len(one.message.data) for one in deliveries) <= max_bytes


async def _spoil_the_ack_of_others(broker: MemoryBroker, right: Right, tokens: Sequence[str], floor: Instant) -> None:
    if all(broker._leased(token) for token in tokens):
        await right(tokens, floor)


async def _bury_for_anybody(broker: MemoryBroker, right: Right, delivery: Delivery, reason: str) -> None:
    broker._messages[int(delivery.message_id)].buried = reason


async def _dig_up_what_is_given_back(broker: MemoryBroker, right: Right, tokens: Sequence[str]) -> None:
    await right(tokens)
    for token in tokens:
        if held := _held(broker, token):
            held.buried = None


async def _revive_lost_leases(broker: MemoryBroker, right: Right, tokens: Sequence[str], seconds: float) -> None:
    for token in tokens:
        if held := _held(broker, token):
            held.until = broker._clock.now() + seconds


async def _only_extend_for_longer(broker: MemoryBroker, right: Right, tokens: Sequence[str], seconds: float) -> None:
    if seconds > 1:
        await right(tokens, seconds)


async def _never_free_a_once(broker: MemoryBroker, right: Right, messages: Sequence[Message], check: Check) -> None:
    taken = broker.__dict__.setdefault("taken", set())
    for message in messages:
        if message.once is None or message.once not in taken:
            taken.add(message.once)
            await right([message])


def _unequal(broker: MemoryBroker, messages: Sequence[Message]) -> Sequence[Message]:
    there = [held.message for held in broker._messages.values()]
    return [message for at, message in enumerate(messages) if message not in there + [*messages][:at]]


def _admit_with_what_is_buried(broker: MemoryBroker, right: Right, size: int) -> None:
    held = sum(len(held.message.data) for held in broker._messages.values())
    if held and size + held > broker._max_pending_bytes:
        raise OverloadedError("full")


BROKERS: Final[dict[str, Fault]] = {
    "loses one": publishes(lambda _, messages: messages[:25]),
    "doubles one": publishes(lambda _, messages: [*messages, *messages[:1]]),
    "forgets attributes": publishes(
        lambda _, messages: [replace(message, attributes={"number": "1"}) for message in messages]
    ),
    "leases to everybody": calls(
        _free=lambda broker, _: [number for number, held in broker._messages.items() if held.buried is None]
    ),
    "takes stale acks": calls(_leased=lambda broker, _, token: _held(broker, token)),
    "never redelivers": calls(
        _free=lambda broker, _: [
            number for number, held in broker._messages.items() if held.attempt == 0 and held.buried is None
        ]
    ),
    "ignores the limit": calls(pull=lambda _, right, limit, max_bytes, wait: right(10**6, 10**9, wait)),
    "acks all of a pull": calls(
        ack=lambda broker, right, tokens, floor: right(
            [f"{number}.{held.attempt}" for number, held in broker._messages.items() if held.until > 0], floor
        )
    ),
    "forgets to extend": calls(extend=nothing),
    "keeps what is given back": calls(give_back=nothing),
    "buries nothing": calls(bury=lambda broker, _, delivery, reason: broker.ack([delivery.token], BEGINNING)),
    "takes too much": calls(_admit=lambda *_: None),
    "forgets attempts": pulls(lambda _, held: replace(held, attempt=1)),
    "repeats tokens of a message": calls(
        pull=lambda _, right, *limits: _without_attempts(right, *limits),
        _leased=lambda broker, _, token: held if (held := _held(broker, token)) and held.until > 0 else None,
    ),
    "ignores bytes": calls(pull=lambda _, right, limit, max_bytes, wait: right(limit, 10**9, wait)),
    "wants all bytes to fit": gives(
        "pull", lambda _, held, limit, max_bytes, wait: held if _fits(held, max_bytes) else ()
    ),
    "never waits": calls(pull=lambda _, right, limit, max_bytes, wait: right(limit, max_bytes, 0)),
    "spoils the ack of others": calls(ack=_spoil_the_ack_of_others),
    "buries for anybody": calls(bury=_bury_for_anybody),
    "digs up what is given back": calls(give_back=_dig_up_what_is_given_back),
    "revives lost leases": calls(extend=_revive_lost_leases),
    "only extends for longer": calls(extend=_only_extend_for_longer),
    "takes the second of one once": publishes(
        lambda _, messages: [replace(message, once=None) for message in messages]
    ),
    "never frees a once": calls(publish=_never_free_a_once),
    "drops equal messages": publishes(_unequal),
    "reuses ids": before("publish", "_last", lambda broker, *_: max(broker._messages, default=0)),
    "published when pulled": pulls(
        lambda broker, held: replace(held, published=BrokerMillis(int(broker._clock.now() * 1000)))
    ),
    "leases for a moment": before("pull", "_lease", lambda *_: 1),
    "is filled by what is buried": calls(_admit=_admit_with_what_is_buried),
}


async def _without_attempts(right: Right, *limits: float) -> Any:
    """Of one token for all leases of a message."""
    return [replace(held, token=f"{held.message_id}.0") for held in await right(*limits)]


def lists(change: Callable[[int, Letter], Letter]) -> Fault:
    """The way hands out other letters."""
    return gives("pull", lambda way, found, *_: [change(number, letter) for number, letter in enumerate(found)])


def _bury_all(way: MemoryDeadLetters) -> None:
    for held in way._broker._messages.values():
        held.buried = held.buried or "because"


async def _hand_out_the_living(way: MemoryDeadLetters, right: Right, limit: int, max_bytes: int) -> Any:
    _bury_all(way)
    return await right(limit, max_bytes)


async def _hand_out_again(way: MemoryDeadLetters, right: Right, limit: int, max_bytes: int) -> Any:
    found = await right(limit, max_bytes)
    if not found and not way.__dict__.setdefault("twice", False):
        way.__dict__["twice"], way._last = True, 0
        found = await right(limit, max_bytes)
    return found


async def _consume_what_it_lists(way: MemoryDeadLetters, right: Right, limit: int, max_bytes: int) -> Any:
    found = await right(limit, max_bytes)
    await way.ack([letter.delivery.token for letter in found], BEGINNING)
    return found


async def _stop_early(way: MemoryDeadLetters, right: Right, limit: int, max_bytes: int) -> Any:
    return () if way._last else await right(limit, max_bytes)


async def _forget_the_living(way: MemoryDeadLetters, right: Right, tokens: Sequence[str], floor: Instant) -> None:
    _bury_all(way)
    await right([*map(str, way._broker._messages)], floor)


async def _forget_the_entry_again(way: MemoryDeadLetters, right: Right, tokens: Sequence[str], floor: Instant) -> None:
    pending = way._broker.pending
    gone = [token for token in tokens if not way._broker._is_buried(int(token))]
    await right(tokens, floor)
    if gone:
        pending.settle([*pending._messages], floor)


async def _keep_the_entry(way: MemoryDeadLetters, right: Right, tokens: Sequence[str], floor: Instant) -> None:
    pending, way._broker.pending = way._broker.pending, type(way._broker.pending)()
    await right(tokens, floor)
    way._broker.pending = pending


def buries(reason: Callable[[str], str | None]) -> Fault:
    """What is buried again gets another reason, or lives."""

    async def bury(way: MemoryDeadLetters, right: Right, delivery: Delivery, why: str) -> None:
        way._broker._messages[int(delivery.token)].buried = reason(why)

    return calls(bury=bury)


LETTERS: Final[dict[str, Fault]] = {
    "hands out the living": calls(pull=_hand_out_the_living),
    "hands out again": calls(pull=_hand_out_again),
    "consumes what it lists": calls(pull=_consume_what_it_lists),
    "ignores limits": calls(pull=lambda _, right, limit, max_bytes: right(10**6, 10**9)),
    "wants all bytes to fit": gives(
        "pull",
        lambda _, found, limit, max_bytes: found if _fits([one.delivery for one in found], max_bytes) else (),
    ),
    "stops early": calls(pull=_stop_early),
    "forgets nothing": calls(ack=nothing),
    "forgets all": calls(
        ack=lambda way, right, tokens, floor: right([str(number) for number, _ in way._broker.letters(0)], floor)
    ),
    "forgets the living": calls(ack=_forget_the_living),
    "forgets without a floor": calls(ack=lambda _, right, tokens, floor: right(tokens, BEGINNING)),
    "forgets the entry again": calls(ack=_forget_the_entry_again),
    "keeps the entry": calls(ack=_keep_the_entry),
    "keeps the first reason": calls(bury=nothing),
    "digs up": buries(lambda _: None),
    "drops what is still dead": calls(bury=lambda way, _, delivery, reason: way.ack([delivery.token], BEGINNING)),
    "buries what is gone": buries(lambda reason: reason),
    "makes up times": lists(lambda _, one: replace(one, delivery=replace(one.delivery, published=BrokerMillis(1)))),
    "makes up ids": lists(
        lambda number, one: replace(one, delivery=replace(one.delivery, message_id=f"dead-{number}"))
    ),
    "loses reasons": lists(lambda _, one: replace(one, reason="dead")),
    "begins at the letter again": calls(continue_after=lambda _, right, token: right(str(int(token) - 1))),
}

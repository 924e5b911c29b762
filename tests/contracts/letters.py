"""The contract of DeadLetters."""

from collections.abc import Callable
from dataclasses import dataclass

from shared.model.buckets import Instant
from shared.model.words import Delivery, Envelope, Letter, Message
from shared.ports.broker import DeadLetters, Publisher, Subscription
from shared.ports.overlay import Overlay
from shared.wire.codec import encode
from tests.contracts.broker import message, pull_all
from tests.contracts.overlay import entries, view

BYTES = 10**7


@dataclass
class Buried:
    """A broker, empty at first, and any number of ways through its dead letters."""

    publisher: Publisher
    subscription: Subscription
    letters: Callable[[], DeadLetters]
    overlay: Overlay | None = None
    """Where it lives in the broker."""


async def bury(buried: Buried, *messages: Message, reason: str = "because") -> list[Delivery]:
    await buried.publisher.publish(messages)
    held = await pull_all(buried.subscription, len(messages))
    for delivery in held:
        await buried.subscription.bury(delivery, reason)
    return held


async def through(letters: DeadLetters, limit: int = 100) -> list[Letter]:
    """All of them, in as many pulls as it takes."""
    found: list[Letter] = []
    while some := await letters.pull(limit, BYTES):
        assert len(some) <= limit
        found += some
    return found


async def look(buried: Buried) -> list[Letter]:
    """As somebody who only lists them."""
    letters = buried.letters()
    found = await through(letters)
    await letters.close()
    return found


def data_of(letters: list[Letter]) -> list[bytes]:
    return sorted(letter.delivery.message.data for letter in letters)


class LettersContract:
    """Inherit it and say what `buried` is."""

    async def test_a_letter_is_the_message_as_it_was_and_says_why(self, buried: Buried) -> None:
        odd = Message(b"\x00\xff\n", {"number": "1", "ü": "\N{SNOWMAN}", "ce-id": "x"})
        (held,) = await bury(buried, odd, reason="it is odd: \N{SNOWMAN}")
        (letter,) = await look(buried)
        assert letter.delivery.message == odd
        assert (letter.delivery.message_id, letter.delivery.published) == (held.message_id, held.published)
        assert (letter.reason, letter.flaw) == ("it is odd: \N{SNOWMAN}", None)

    async def test_each_is_handed_out_once_and_to_the_next_who_goes_through(self, buried: Buried) -> None:
        await bury(buried, *(message(number) for number in range(12)))
        for _ in range(2):
            letters = buried.letters()
            found = await through(letters, limit=5)
            assert data_of(found) == sorted(message(number).data for number in range(12))
            assert await letters.pull(5, BYTES) == []
            await letters.close()

    async def test_a_pull_takes_no_more_bytes_than_allowed_but_one_letter_at_least(self, buried: Buried) -> None:
        await bury(buried, *(Message(b" " * 1_000 + str(number).encode()) for number in range(5)))
        letters = buried.letters()
        sizes = [len(await letters.pull(100, most)) for most in (2_500, 10, 10**6)]
        sizes.append(len(await through(letters)))
        assert 1 <= sizes[0] <= 2
        assert sizes[1] == 1
        assert sum(sizes) == 5
        await letters.close()

    async def test_a_pass_continues_after_a_letter_where_letters_have_an_order(self, buried: Buried) -> None:
        await bury(buried, *(message(number) for number in range(6)))
        first = buried.letters()
        found = await through(first, limit=1)
        await first.close()
        second = buried.letters()
        second.continue_after(found[2].delivery.token)
        rest = data_of(await through(second))
        assert rest == data_of(found[3:] if second.complete else found)
        await second.close()

    async def test_what_is_forgotten_is_gone_and_nothing_else(self, buried: Buried) -> None:
        await bury(buried, *(message(number) for number in range(4)))
        letters = buried.letters()
        found = await through(letters)
        for _ in range(2):
            await letters.ack([one.delivery.token for one in found[:3]], floor=Instant(1))
        await letters.close()
        (left,) = await look(buried)
        assert left.delivery.message_id == found[3].delivery.message_id

    async def test_what_another_has_forgotten_is_no_error(self, buried: Buried) -> None:
        await bury(buried, message(1), message(2))
        first = buried.letters()
        found = await through(first)
        await first.close()
        second = buried.letters()
        (one, *_) = again = await through(second)
        assert len(again) == 2
        await second.ack([one.delivery.token], floor=Instant(1))
        await second.close()
        same = [letter for letter in found if letter.delivery.message_id == one.delivery.message_id]
        await first.ack([letter.delivery.token for letter in same], floor=Instant(1))
        await first.bury(same[0].delivery, "still")
        kept = {letter.delivery.message_id for letter in await look(buried)}
        assert {letter.delivery.message_id for letter in again[1:]} <= kept

    async def test_what_is_buried_again_stays_once_with_the_new_reason(self, buried: Buried) -> None:
        odd = Message(b'{"counter":"a"}', {"ce-id": "x", "ce-source": "y"})
        (held,) = await bury(buried, odd, reason="first")
        for reason in ("second", "third"):
            letters = buried.letters()
            (letter,) = await through(letters)
            await letters.bury(letter.delivery, reason)
            assert await through(letters) == []
            await letters.close()
            (letter,) = await look(buried)
            assert (letter.delivery.message, letter.reason, letter.flaw) == (odd, reason, None)
            assert (letter.delivery.message_id, letter.delivery.published) == (held.message_id, held.published)

    async def test_what_waits_is_left_alone(self, buried: Buried) -> None:
        """Whoever goes through the dead touches no message that is alive."""
        await bury(buried, message(1))
        await buried.publisher.publish([message(2)])
        letters = buried.letters()
        (letter,) = await through(letters)
        await letters.ack([letter.delivery.token], floor=Instant(1))
        await letters.close()
        (held,) = await pull_all(buried.subscription, 1)
        assert held.message.data == message(2).data
        await buried.subscription.ack([held.token], floor=Instant(1))
        assert await look(buried) == []


class LettersOfOverlayContract:
    """Where the broker's messages are the overlay."""

    async def test_an_entry_stays_until_its_letter_is_forgotten(self, buried: Buried) -> None:
        assert buried.overlay is not None
        await bury(buried, *(encode(Envelope(name, {"a": 1})) for name in ("e1", "e2")))
        letters = buried.letters()
        one, other = await through(letters)
        await letters.bury(other.delivery, "still")
        assert len(await entries(buried.overlay, "a")) == 2
        before = (await view(buried.overlay, "a")).floor
        await letters.ack([one.delivery.token], Instant(before + 7))
        assert len(await entries(buried.overlay, "a")) == 1
        assert (await view(buried.overlay, "a")).floor >= before + 7
        await letters.close()

    async def test_forgetting_what_is_gone_takes_no_entry(self, buried: Buried) -> None:
        assert buried.overlay is not None
        await bury(buried, encode(Envelope("e1", {"a": 1})))
        letters = buried.letters()
        (one,) = await through(letters)
        await letters.ack([one.delivery.token], Instant(3))
        await buried.publisher.publish([encode(Envelope("e2", {"a": 1}))])
        await letters.ack([one.delivery.token], Instant(4))
        assert len(await entries(buried.overlay, "a")) == 1
        await letters.close()

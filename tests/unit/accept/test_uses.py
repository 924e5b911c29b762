"""A request finds its own uses of ids and keys among those of others."""

from hypothesis import given
from hypothesis import strategies as st

from ingest.accept.drafts import Batch, Coalescer, Draft, Uses
from shared.model.receipts import Note, key_of_envelope
from shared.model.words import Increment
from shared.runtime.ids import mint


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(0, 9), st.lists(st.integers(0, 9), max_size=3))
def test_the_places_are_those_of_its_own_increments(before: list[int], mine: int, after: list[int]) -> None:
    coalescer = Coalescer(mint, max_entries=4)
    others = [number for numbers in (before, after) for number in numbers]

    def of(owner: str, number: int) -> Batch:
        keyed = [Increment("c", 1, f"{owner} {place}") for place in range(number)]
        return Batch({f"{owner} {number}": 1}, {}, keyed, 1 + number)

    for number in before:
        coalescer.add_batch(of("other", number))
    drafts = coalescer.add_batch(of("mine", mine))
    uses = Uses(drafts, mine)
    for number in after:
        coalescer.add_batch(of("other", number))

    def seconds(draft: Draft, owner: str) -> list[int]:
        return [place for place, item in enumerate(draft.keyed) if (item.id or "").startswith(owner)]

    everything = coalescer.take(1_000)
    assert sum(len(seconds(draft, "other")) for draft in everything) == sum(others)
    for owner, expected in (("mine", mine), ("other", 0)):
        for draft in everything:
            draft.second_uses = set()
        notes = {key_of_envelope(draft.id): Note(second_uses=seconds(draft, owner)) for draft in everything}
        assert uses.second(notes) == expected
        for draft in everything:
            draft.second_uses = {*seconds(draft, owner)}
        assert uses.second() == expected
        assert uses.second(dict.fromkeys(notes, Note())) == expected


def test_a_batch_under_a_key_is_second_as_a_whole() -> None:
    coalescer = Coalescer(mint)
    draft = coalescer.add_whole(Batch({"a": 2, "b": 1}, {"a": 2}, [], 3), "key")
    uses, key = Uses([draft], 0), key_of_envelope("key")
    assert uses.second() == uses.second({key: Note(attempt=draft.attempt)}) == 0
    assert uses.second({key: Note()}) == 0, "it has no note"
    assert uses.second({key: Note(attempt="another")}) == 3
    draft.is_second = True
    assert uses.second() == 3

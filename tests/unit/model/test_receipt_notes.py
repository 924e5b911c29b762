"""The notes of receipts can be read back, and say everything."""

from hypothesis import given
from hypothesis import strategies as st

from shared.model.receipts import MOST_SUMS, Tally, notes_of_commit, read_note
from shared.model.words import SHARD_FULL

NAMES = st.text(st.characters(codec="utf-8"), max_size=9)
COUNTS = st.integers(0, 2**40)
TALLIES = st.builds(Tally, COUNTS, COUNTS, COUNTS, COUNTS)


@given(st.lists(NAMES, min_size=1), NAMES, TALLIES, st.dictionaries(NAMES, st.integers(-SHARD_FULL, SHARD_FULL)))
def test_what_is_written_is_read(attempts: list[str], commit: str, tally: Tally, sums: dict[str, int]) -> None:
    first, *others = written = [read_note(note) for note in notes_of_commit(attempts, commit, tally, sums)]
    assert [note.attempt for note in written] == attempts
    assert (first.commit, first.tally, first.sums) == (commit, tally, sums)
    assert not any(note.commit or note.sums or note.tally != Tally() for note in others)


@given(st.lists(st.lists(st.integers(0, 999), unique=True), min_size=1, max_size=5))
def test_second_uses_are_read_from_the_receipt_of_their_envelope(places: list[list[int]]) -> None:
    seconds = {number: its for number, its in enumerate(places) if its}
    written = notes_of_commit(["", "b"] * len(places), "c", Tally(), {}, seconds)
    assert [[*read_note(note).second_uses] for note in written] == places + [[]] * len(places)


def test_many_sums_go_into_as_many_receipts_as_they_need() -> None:
    sums = {f"n{number}": number for number in range(2_300)}
    written = notes_of_commit([""] * 4, "c", Tally(applied=9), sums)
    assert [len(read_note(note).sums) for note in written] == [1_000, 1_000, 300, 0]
    assert {name: total for note in written for name, total in read_note(note).sums.items()} == sums
    assert written[3] == b"", "most receipts say nothing"


def test_the_largest_note_fits_into_an_entity() -> None:
    sums = {f"{number:04}" + '"' * 396: -SHARD_FULL for number in range(MOST_SUMS)}
    places = {0: [*range(1_000)]}
    (note,) = notes_of_commit(["a" * 100], "c" * 12, Tally(*[2**60] * 4), sums, places)
    assert len(note) < 1_000_000

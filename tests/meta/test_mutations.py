"""Each mutation names something that is there, and would change it; the machinery refuses all others."""

from collections import Counter

import pytest

from tests.meta.checkout import ROOT
from tests.mutations.mutation import MUTATIONS, Mutation, UselessMutationError, calling, changes, instead, text
from tests.mutations.table import by_name


def test_each_changes_what_it_names() -> None:
    for one in by_name().values():
        assert len(changes(one)) == len(one.places), one.name


def test_the_tests_that_must_notice_them_are_there() -> None:
    for one in by_name().values():
        paths = [argument for argument in one.caught_by if argument.startswith("tests/")]
        assert paths, one.name
        assert [path for path in paths if not (ROOT / path.partition("::")[0]).exists()] == [], one.name


def test_no_two_have_the_same_name() -> None:
    assert [name for name, number in Counter(one.name for one in MUTATIONS).items() if number > 1] == []


@pytest.mark.parametrize(
    ("place", "make"),
    [
        ("shared.model.words.gone", instead(1)),
        ("tests.world.memory.store.MemoryStore.gone", instead(1)),
        ("shared.gone.was_compacted", instead(1)),
        ("shared.model.words.was_compacted", lambda there: there),
        ("shared.model.words.was_compacted", calling(choose=None)),
        ("shared.sqlite.store._CHANGE", text("what is not there", "")),
        ("shared.sqlite.store._CHANGE", text("counter", "")),
        ("shared.sqlite.store._CHANGE", text("INSERT", "INSERT")),
    ],
)
def test_one_that_would_do_nothing_is_refused(place: str, make: object) -> None:
    with pytest.raises(UselessMutationError):
        changes(Mutation("useless", (place,), make, ()))  # type: ignore[arg-type] # all of them can be called

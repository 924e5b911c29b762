"""The index of names agrees with a sorted set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.counters import pending
from shared.counters.pending import NAMES_AT_ONCE, NameIndex, in_blocks

NAMES = st.text("abc€", min_size=1, max_size=4)


@given(
    begun=st.sets(NAMES),
    changes=st.lists(st.tuples(st.booleans(), NAMES), max_size=80),
    prefix=st.text("abc€", max_size=2),
    after=st.text("abc€", max_size=3),
    limit=st.one_of(st.none(), st.integers(1, 9)),
)
def test_pages_are_those_of_a_sorted_set(
    begun: set[str], changes: list[tuple[bool, str]], prefix: str, after: str, limit: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending, "BLOCK", 2)
        patch.setattr(pending, "NAMES_AT_ONCE", 4)
        for index in (NameIndex([*in_blocks([*begun])][-1]), NameIndex()):
            names = set(begun)
            for name in begun:
                index.add(name)
            for comes, name in changes:
                (index.add if comes else index.discard)(name)
                (names.add if comes else names.discard)(name)
            expected = sorted(name for name in names if name.startswith(prefix) and name > after)
            assert index.page(prefix, after, limit) == expected[:limit]


def test_it_is_sorted_in_steps() -> None:
    names = [str(number) for number in range(50_000)]
    steps = [*in_blocks(names)]
    assert len(steps) > 2 * 50_000 / NAMES_AT_ONCE
    assert [name for block in steps[-1] for name in block] == sorted(names)
    assert not any(steps[:-1])

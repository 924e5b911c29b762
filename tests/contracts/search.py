"""The contract of finding counters by a part of their names."""

from typing import Protocol

from shared.ports.store import Commits, NameSearch
from tests.contracts.store import commit


class Searchable(Commits, NameSearch, Protocol):
    """A store that can find them."""


class SearchContract:
    """Inherit it beside `StoreContract`."""

    async def test_names_are_found_by_a_part(self, store: Searchable) -> None:
        names = [
            "blog",
            "home:a",
            "page:%",
            "page:Home",
            "page:home",
            "page:home/é",
            "page:\U0001f600home",
            "xhome",
        ]
        await store.apply(commit(*[(name, 1) for name in names]))
        found = [names[1], *names[4:]]
        assert [*await store.names_with("home", "", "", 10)] == found
        assert [*await store.names_with("home", "page:", "", 10)] == found[1:4]
        assert [*await store.names_with("home", "page:", "", 2)] == found[1:3]
        assert [*await store.names_with("home", "page:", "page:home", 10)] == found[2:4]
        assert [*await store.names_with("%", "", "", 10)] == ["page:%"]
        assert [*await store.names_with("\U0001f600", "", "", 10)] == ["page:\U0001f600home"]
        assert [*await store.names_with("_", "", "", 10)] == []

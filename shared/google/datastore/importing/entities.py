"""Reads entities of other applications: values that may not be numbers, and sums over shards."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.keys import DatastorePlace, Key, flaw_of, whole
from shared.google.datastore.queries import KEY, Operator, query_of, where
from shared.model.import_source import Foreign

PAGE: Final = 2_000
"""Entities in a page. They are small, and the emulators scan the whole kind for each page."""


class Kind(NamedTuple):
    """One kind in a namespace."""

    client: DatastoreClient
    place: DatastorePlace
    kind: str

    def query(self, order: str = KEY, *, keys_only: bool = False) -> Any:
        return query_of(self.kind, PAGE, order=order, keys_only=keys_only)

    def from_key(self, query: Any, name: str) -> Any:
        """Limit the query to this key name and those after it. An empty name limits nothing."""
        return where(query, KEY, Operator.GREATER_THAN_OR_EQUAL, key_value=self.key(name)) if name else query

    def key(self, name: str) -> Key:
        return self.place.key(self.kind, name)

    async def entities(self, query: Any) -> AsyncIterator[Any]:
        async for page in self.pages(query):
            for entity in page:
                yield entity

    async def pages(self, query: Any) -> AsyncIterator[Sequence[Any]]:
        partition = self.key("any").partition_id
        async for results in self.client.pages(partition, query, read_time=None):
            yield [one.entity for one in results]


class Sum:
    """Adds up the shards of one counter."""

    def __init__(self, name: str, count: str) -> None:
        self.name = name
        self.shards = 0
        self._count = count
        self._total = 0
        self._flaw = ""

    def add(self, shard: Any) -> None:
        number, flaw = integer_of(shard, self._count, 0)
        self.shards += 1
        self._total += number
        self._flaw = self._flaw or flaw

    def counter(self) -> Foreign:
        return Foreign(self.name, 0 if self._flaw else self._total, self._flaw)


def integer_of(entity: Any, name: str, default: int) -> tuple[int, str]:
    """The value of a property, or the default if it is missing; and why the value is no whole number, if it is none."""
    if name not in entity.properties:
        return default, ""
    number = whole(entity.properties[name])
    return (default, flaw_of(entity, name)) if number is None else (number, "")

"""Reads the counters of the published variants from Datastore. It writes nothing there."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any, Final

from grpc import StatusCode
from grpc.aio import AioRpcError

from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.importing.by_config import SourceByConfig
from shared.google.datastore.importing.entities import Kind, Sum
from shared.google.datastore.keys import DatastorePlace, name_of, said
from shared.google.datastore.queries import KEY, Operator, where
from shared.model.errors import SettingsError, TransientError
from shared.model.import_source import Foreign, Source
from shared.model.import_variants import By, Variant

AT_ONCE: Final = 16
"""How many kinds are read at once."""
_KINDS: Final = "__kind__"
NameIn = Callable[[Any], str | None]
"""Returns the name of a shard's counter; None if the shard does not name one."""
QueryFor = Callable[[str], Any]


def source_in(
    client: DatastoreClient,
    place: DatastorePlace,
    variant: Variant,
    *,
    name: str,
    kind: str = "",
    names: Collection[str] = (),
) -> Source:
    """`kind`: that of the shards, if it is not the usual one. `names`: the name of the only counter, if it has none
    there; or the counters to read, if each is a kind of its own.
    """
    ways: dict[By, Any] = {
        By.CONFIG: lambda: SourceByConfig(client, place, variant),
        By.LABEL: lambda: by_label(Kind(client, place, kind or variant.shard), variant),
        By.PARENT: lambda: by_parent(Kind(client, place, variant.shard), variant),
        By.KIND: lambda: SourceKinds(client, place, variant, names),
        By.ALL: lambda: SourceByWholeKind(Kind(client, place, kind or variant.shard), variant, *names),
    }
    source: Source = ways[variant.by]()
    source.name = name
    return source


class GroupedSource:
    """Each shard tells its counter. The application adds up all shards that tell the same one."""

    name = ""

    def __init__(self, shards: Kind, count: str, tells: NameIn, of: QueryFor, since: QueryFor) -> None:
        """`of` finds the shards of a counter; `since` those of a prefix and behind it, in the order of counters."""
        self._shards = shards
        self._count = count
        self._tells = tells
        self._of = of
        self._since = since

    async def counter(self, name: str) -> Foreign | None:
        return await _one(self._shards, self._of(name), Sum(name, self._count))

    def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        return _grouped(self._shards, self._since(prefix), prefix, self._tells, self._count)


def by_label(shards: Kind, variant: Variant) -> GroupedSource:
    """Each shard names its counter in a property."""
    label = variant.label

    def tells(shard: Any) -> str | None:
        held = shard.properties[label]
        return str(held.string_value) if held.WhichOneof("value_type") == "string_value" else None

    def since(prefix: str) -> Any:
        query = shards.query(label)
        return where(query, label, Operator.GREATER_THAN_OR_EQUAL, string_value=prefix) if prefix else query

    return GroupedSource(
        shards,
        variant.count,
        tells,
        lambda name: where(shards.query(), label, Operator.EQUAL, string_value=name),
        since,
    )


def by_parent(shards: Kind, variant: Variant) -> GroupedSource:
    """Each shard has the key of its counter as its ancestor."""

    def tells(shard: Any) -> str | None:
        path = shard.key.path
        return path[0].name or None if len(path) > 1 and path[0].kind == shards.kind else None

    def of(name: str) -> Any:
        return where(shards.query(), KEY, Operator.HAS_ANCESTOR, key_value=shards.key(name))

    return GroupedSource(shards, variant.count, tells, of, lambda prefix: shards.from_key(shards.query(), prefix))


class SourceKinds:
    """The shards of each counter are a kind of their own. There are few enough kinds to keep all names in memory."""

    name = ""

    def __init__(
        self, client: DatastoreClient, place: DatastorePlace, variant: Variant, known: Collection[str]
    ) -> None:
        self._client = client
        self._place = place
        self._variant = variant
        self._known = known

    async def counter(self, name: str) -> Foreign | None:
        shards = Kind(self._client, self._place, f"{self._variant.shard}{name}")
        return await _one(shards, shards.query(), Sum(name, self._variant.count))

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        names = self._known or await self._all(prefix)
        ordered = sorted(name for name in names if name.startswith(prefix))
        for begin in range(0, len(ordered), AT_ONCE):
            for one in await asyncio.gather(*map(self.counter, ordered[begin : begin + AT_ONCE])):
                if one is not None:
                    yield one

    async def _all(self, prefix: str) -> set[str]:
        try:
            names = {name async for name in self._names(_KINDS, self._variant.shard, prefix)}
        except TransientError as error:
            if isinstance(error.__cause__, AioRpcError) and error.__cause__.code() is StatusCode.INVALID_ARGUMENT:
                raise SettingsError("an emulator cannot list kinds: name each counter with --name") from error
            raise
        return names | {name async for name in self._names(self._variant.config, "", prefix)}

    async def _names(self, kind: str, beginning: str, prefix: str) -> AsyncIterator[str]:
        """Names of entities, without their common beginning. A config without shards is a counter that holds 0."""
        entities = Kind(self._client, self._place, kind)
        query = entities.from_key(entities.query(keys_only=True), beginning + prefix)
        async for entity in entities.entities(query):
            _, name = name_of(entity.key)
            if not name.startswith(beginning + prefix):
                return
            yield name.removeprefix(beginning)


class SourceByWholeKind:
    """All shards of the kind belong to one counter."""

    name = ""

    def __init__(self, shards: Kind, variant: Variant, counter: str) -> None:
        self._shards = shards
        self._variant = variant
        self._counter = counter

    async def counter(self, name: str) -> Foreign | None:
        return await _one(self._shards, self._shards.query(), Sum(name, self._variant.count))

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        if self._counter.startswith(prefix) and (one := await self.counter(self._counter)) is not None:
            yield one


async def _one(shards: Kind, query: Any, held: Sum) -> Foreign | None:
    async for shard in shards.entities(query):
        held.add(shard)
    return held.counter() if held.shards else None


async def _grouped(
    shards: Kind, query: Any, prefix: str, name_in: NameIn, count: str
) -> AsyncGenerator[Foreign | str, None]:
    """The sums of counters, from a query that lists the shards of a counter, and counters of a prefix, in a row."""
    held: Sum | None = None
    async for shard in shards.entities(query):
        name = name_in(shard)
        if name is None:
            yield f"{said(shard.key)} is left out: it does not name its counter"
            continue
        if held is not None and name != held.name:
            yield held.counter()
            held = None
        if not name.startswith(prefix):
            return
        held = held or Sum(name, count)
        held.add(shard)
    if held is not None:
        yield held.counter()

"""Reads the counters of other applications from Datastore: the published variants. It writes nothing there."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from grpc import StatusCode
from grpc.aio import AioRpcError

from shared.datastore.client import DatastoreClient
from shared.datastore.keys import KEY, Key, Operator, flaw_of, name_of, query_of, said, shard_of, where, whole
from shared.model.errors import SettingsError, TransientError
from shared.model.moving import MOST_FOREIGN_SHARDS, By, Foreign, Source, Variant
from shared.model.words import pages, shard_key

# Reads entities of other applications: values that may not be numbers, and sums over shards.


PAGE: Final = 2_000
"""Entities in a page. They are small, and the emulators scan the whole kind for each page."""


class Kind(NamedTuple):
    """One kind in a namespace."""

    client: DatastoreClient
    kind: str

    def query(self, order: str = KEY, *, keys_only: bool = False) -> Any:
        return query_of(self.kind, PAGE, order=order, keys_only=keys_only)

    def from_key(self, query: Any, name: str) -> Any:
        """Limit the query to this key name and those after it. An empty name limits nothing."""
        return where(query, KEY, Operator.GREATER_THAN_OR_EQUAL, key_value=self.key(name)) if name else query

    def key(self, name: str) -> Key:
        return self.client.place.key(self.kind, name)

    async def entities(self, query: Any) -> AsyncIterator[Any]:
        async for page in self.pages(query):
            for entity in page:
                yield entity

    async def sum(self, query: Any, name: str, count: str) -> Foreign | None:
        """The counter whose shards are these; None if there are none."""
        held = None
        async for shard in self.entities(query):
            held = _added(held or Foreign(name), shard, count)
        return held

    async def pages(self, query: Any) -> AsyncIterator[Sequence[Any]]:
        async for results in self.client.pages(query, read_time=None):
            yield [one.entity for one in results]


def _added(held: Foreign, shard: Any, count: str) -> Foreign:
    """The counter with one more of its shards."""
    number, flaw = integer_of(shard, count, 0)
    flaw = held.flaw or flaw
    return Foreign(held.name, 0 if flaw else held.total + number, flaw)


def integer_of(entity: Any, name: str, default: int) -> tuple[int, str]:
    """The value of a property, or the default if it is missing; and why the value is no whole number, if it is none."""
    if name not in entity.properties:
        return default, ""
    number = whole(entity.properties[name])
    return (default, flaw_of(entity, name)) if number is None else (number, "")


# Reads counters whose configs hold the number of shards, and whose shards are found by their keys.


MOST_CONFIGS: Final = 500
MOST_SHARD_KEYS: Final = 5_000
_ANY: Final = 2**63


class SourceByConfig:
    """Goes through the configs, and then through the shards of counters without one: their application makes a config
    when it finds none.
    """

    name = ""

    def __init__(self, client: DatastoreClient, variant: Variant) -> None:
        self._client = client
        self._variant = variant
        self._configs = Kind(client, variant.config)
        self._shards = Kind(client, variant.shard)

    async def counter(self, name: str) -> Foreign | None:
        config = await self._client.look_up_one(self._configs.key(name))
        number, flaw = self._number(config.entity) if config else (self._variant.shards, "")
        return Foreign(name, flaw=flaw) if flaw else (await self._sums({name: number}))[0]

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        query = self._configs.from_key(self._configs.query(), prefix)
        numbers: dict[str, int] = {}
        async for entity in self._configs.entities(query):
            _, name = name_of(entity.key)
            if not name:
                yield f"{said(entity.key)} is left out: it has a number instead of a name"
                continue
            if not name.startswith(prefix):
                break
            number, flaw = self._number(entity)
            if flaw:
                yield Foreign(name, flaw=flaw)
                continue
            if len(numbers) == MOST_CONFIGS or sum(numbers.values()) + number > MOST_SHARD_KEYS:
                for one in await self._sums(numbers):
                    yield one
                numbers = {}
            numbers[name] = number
        for one in await self._sums(numbers):
            yield one
        async for other in self._beside(prefix):
            yield other

    def _number(self, config: Any) -> tuple[int, str]:
        number, flaw = integer_of(config, self._variant.number, self._variant.shards)
        if not flaw and not 0 <= number <= MOST_FOREIGN_SHARDS:
            flaw = f"{said(config.key)} says {number} shards, which is not possible"
        return number, flaw

    async def _sums(self, numbers: Mapping[str, int]) -> Sequence[Foreign]:
        """The sums over the shards that exist. All shards are looked up at once."""
        names = {shard_key(name, index): name for name, number in numbers.items() for index in range(number)}
        sums = {name: Foreign(name) for name in numbers}
        for one in (await self._client.look_up(map(self._shards.key, names))).entities:
            name = names[name_of(one.entity.key)[1]]
            sums[name] = _added(sums[name], one.entity, self._variant.count)
        return [*sums.values()]

    async def _beside(self, prefix: str) -> AsyncIterator[Foreign | str]:
        """Counters without a config, and shards that no config covers. A counter without a config is read with the
        default number of shards, as its application would.
        """
        beginning = f"shard-{prefix}" if prefix else ""
        query = self._shards.from_key(self._shards.query(keys_only=True), beginning)
        alone: set[str] = set()
        async for page in self._shards.pages(query):
            shards = [shard_of(entity.key) if len(entity.key.path) == 1 else None for entity in page]
            named = {shard[0] for shard in shards if shard and shard[0].startswith(prefix)} - alone
            numbers = await self._numbers(named)
            new = named - numbers.keys()
            for one in await self._sums(dict.fromkeys(sorted(new), self._variant.shards)):
                yield one
            alone |= new
            for entity, shard in zip(page, shards, strict=True):
                if shard is None and not prefix:
                    yield f"{said(entity.key)} is left out: it is no shard of this variant"
                elif shard and shard[0].startswith(prefix) and shard[1] >= numbers.get(shard[0], self._variant.shards):
                    yield f"{said(entity.key)} is left out: its counter has fewer shards"
            if not name_of(page[-1].key)[1].startswith(beginning):
                return

    async def _numbers(self, names: Iterable[str]) -> Mapping[str, int]:
        """The numbers of shards of the counters with a config. A config without a readable number covers all shards."""
        found = (await self._client.look_up(map(self._configs.key, names))).entities
        numbers = {name_of(one.entity.key)[1]: self._number(one.entity) for one in found}
        return {name: _ANY if flaw else number for name, (number, flaw) in numbers.items()}


AT_ONCE: Final = 16
_KINDS: Final = "__kind__"


def source_in(
    client: DatastoreClient,
    variant: Variant,
    *,
    name: str,
    kind: str = "",
    names: Collection[str] = (),
) -> Source:
    """`kind`: that of the shards, if it is not the usual one. `names`: the name of the only counter, if it has none
    there; or the counters to read, if each is a kind of its own.
    """
    source: Source
    match variant.by:
        case By.CONFIG:
            source = SourceByConfig(client, variant)
        case By.KIND:
            source = SourceKinds(client, variant, names)
        case By.LABEL | By.PARENT | By.ALL:
            source = GroupedSource(Kind(client, kind or variant.shard), variant, names)
    source.name = name
    return source


class GroupedSource:
    """Each shard tells its counter: in a property, or by its ancestor, or there is only one counter. The application
    adds up all shards that tell the same one.
    """

    name = ""

    def __init__(self, shards: Kind, variant: Variant, names: Collection[str]) -> None:
        """`names`: that of the only counter."""
        self._shards = shards
        self._by = variant.by
        self._label = variant.label
        self._count = variant.count
        self._only = next(iter(names), "")

    async def counter(self, name: str) -> Foreign | None:
        query = self._shards.query()
        if self._by is By.LABEL:
            where(query, self._label, Operator.EQUAL, string_value=name)
        elif self._by is By.PARENT:
            where(query, KEY, Operator.HAS_ANCESTOR, key_value=self._shards.key(name))
        return await self._shards.sum(query, name, self._count)

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        """The query lists the shards of a counter, and the counters of a prefix, in a row."""
        held: Foreign | None = None
        async for shard in self._shards.entities(self._since(prefix)):
            name = self._counter_of(shard)
            if name is None:
                yield f"{said(shard.key)} is left out: it does not name its counter"
                continue
            if held is not None and name != held.name:
                yield held
                held = None
            if not name.startswith(prefix):
                return
            held = _added(held or Foreign(name), shard, self._count)
        if held is not None:
            yield held

    def _since(self, prefix: str) -> Any:
        """The shards of the counters with a prefix and behind it, in the order of counters."""
        if self._by is By.LABEL:
            query = self._shards.query(self._label)
            return where(query, self._label, Operator.GREATER_THAN_OR_EQUAL, string_value=prefix) if prefix else query
        query = self._shards.query()
        return self._shards.from_key(query, prefix) if self._by is By.PARENT else query

    def _counter_of(self, shard: Any) -> str | None:
        """The name of the shard's counter; None if it tells none."""
        if self._by is By.LABEL:
            held = shard.properties[self._label]
            return str(held.string_value) if held.WhichOneof("value_type") == "string_value" else None
        if self._by is By.PARENT:
            path = shard.key.path
            return path[0].name or None if len(path) > 1 and path[0].kind == self._shards.kind else None
        return self._only


class SourceKinds:
    """The shards of each counter are a kind of their own. There are few enough kinds to keep all names in memory."""

    name = ""

    def __init__(self, client: DatastoreClient, variant: Variant, known: Collection[str]) -> None:
        self._client = client
        self._variant = variant
        self._known = known

    async def counter(self, name: str) -> Foreign | None:
        shards = Kind(self._client, f"{self._variant.shard}{name}")
        return await shards.sum(shards.query(), name, self._variant.count)

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        names = self._known or await self._all(prefix)
        for some in pages(sorted(name for name in names if name.startswith(prefix)), AT_ONCE):
            for one in await asyncio.gather(*map(self.counter, some)):
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
        entities = Kind(self._client, kind)
        query = entities.from_key(entities.query(keys_only=True), beginning + prefix)
        async for entity in entities.entities(query):
            _, name = name_of(entity.key)
            if not name.startswith(beginning + prefix):
                return
            yield name.removeprefix(beginning)

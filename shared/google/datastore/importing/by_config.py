"""Reads counters whose configs hold the number of shards, and whose shards are found by their keys."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.importing.entities import Kind, Sum, integer_of
from shared.google.datastore.keys import DatastorePlace, Key, name_of, said, shard_of
from shared.model.import_source import Foreign
from shared.model.import_variants import MOST_SHARDS, Variant
from shared.model.sharding import shard_key

MOST_CONFIGS: Final = 500
MOST_KEYS: Final = 5_000
"""How many shards are looked up at once, at most."""
_ANY: Final = 2**63


class SourceByConfig:
    """Goes through the configs, and then through the shards of counters without one: their application makes a config
    when it finds none.
    """

    name = ""

    def __init__(self, client: DatastoreClient, place: DatastorePlace, variant: Variant) -> None:
        self._client = client
        self._variant = variant
        self._configs = Kind(client, place, variant.config)
        self._shards = Kind(client, place, variant.shard)

    async def counter(self, name: str) -> Foreign | None:
        found = (await self._client.look_up([self._configs.key(name)])).entities
        number, flaw = self._number(found[0].entity) if found else (self._variant.shards, "")
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
            if len(numbers) == MOST_CONFIGS or sum(numbers.values()) + number > MOST_KEYS:
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
        if not flaw and not 0 <= number <= MOST_SHARDS:
            flaw = f"{said(config.key)} says {number} shards, which is not possible"
        return number, flaw

    async def _sums(self, numbers: Mapping[str, int]) -> Sequence[Foreign]:
        """The sums over the shards that exist. All shards are looked up at once."""
        names = {shard_key(name, index): name for name, number in numbers.items() for index in range(number)}
        sums = {name: Sum(name, self._variant.count) for name in numbers}
        for one in (await self._client.look_up(map(self._shards.key, names))).entities:
            sums[names[name_of(one.entity.key)[1]]].add(one.entity)
        return [held.counter() for held in sums.values()]

    async def _beside(self, prefix: str) -> AsyncIterator[Foreign | str]:
        """Counters without a config, and shards that no config covers. A counter without a config is read with the
        default number of shards, as its application would.
        """
        beginning = f"shard-{prefix}" if prefix else ""
        query = self._shards.from_key(self._shards.query(keys_only=True), beginning)
        alone: set[str] = set()
        async for page in self._shards.pages(query):
            shards = [_shard_of(entity.key) for entity in page]
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


def _shard_of(key: Key) -> tuple[str, int] | None:
    return shard_of(key) if len(key.path) == 1 else None

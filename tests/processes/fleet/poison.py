"""What a real store refuses, and how it comes to take it: a rule in the file, or what others put into our entities."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from shared.datastore.client import DatastoreClient
from shared.datastore.keys import COUNT, NUM_SHARDS
from shared.model.errors import RefusedError
from tests.processes.fleet.pairs import Embedded, Emulated, Pair

LARGEST = 1_048_487
"""Bytes of a property. The emulator holds whole entities to about as many."""


class Poison:
    """These counters, of one shard each, can't be added to."""

    def __init__(self, pair: Pair, counters: Sequence[str]) -> None:
        self._pair = pair
        self._counters = counters

    async def begin(self) -> str:
        """What the store says of it, in part."""
        if isinstance(self._pair, Embedded):
            names = ", ".join(f"'{counter}'" for counter in self._counters)
            self._rule(
                f"CREATE TRIGGER rule BEFORE INSERT ON shards WHEN NEW.counter IN ({names})"
                " BEGIN SELECT RAISE(ABORT, 'not in this file'); END"
            )
            return "not in this file"
        assert isinstance(self._pair, Emulated)
        client = self._pair.datastore.client()
        for counter in self._counters:
            await self._fill_entity(client, counter)
        return "maximum entity size"

    async def end(self) -> None:
        """Somebody takes away what is too much."""
        if isinstance(self._pair, Embedded):
            self._rule("DROP TRIGGER rule")
            return
        assert isinstance(self._pair, Emulated)
        client = self._pair.datastore.client()
        for counter in self._counters:
            await client.commit(self._request(client, counter))

    def _rule(self, statement: str) -> None:
        assert isinstance(self._pair, Embedded)
        with closing(sqlite3.connect(self._pair.file, isolation_level=None)) as db:
            db.execute(statement)

    async def _fill_entity(self, client: DatastoreClient, counter: str) -> None:
        """To the last bytes, so that the count itself does not fit: it is not there."""
        for size in range(LARGEST, 0, -4):
            request = self._request(client, counter, size)
            del request.mutations[1].upsert.properties[COUNT]
            try:
                await client.commit(request)
            except RefusedError:
                continue
            return

    def _request(self, client: DatastoreClient, counter: str, *sizes: int) -> Any:
        assert isinstance(self._pair, Emulated)
        place, request = self._pair.datastore.place, client.commit_request()
        config, shard = request.mutations.add().upsert, request.mutations.add().upsert
        config.key.CopyFrom(place.config(counter))
        config.properties[NUM_SHARDS].integer_value = 1
        shard.key.CopyFrom(place.shard(counter, 0))
        shard.properties[COUNT].integer_value = 0
        for number, size in enumerate(sizes):
            shard.properties[f"theirs{number}"].blob_value = bytes(size)
            shard.properties[f"theirs{number}"].exclude_from_indexes = True
        return request

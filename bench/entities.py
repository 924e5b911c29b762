"""The counters as they stand in Datastore, read and made by nothing of Countersink's own: its judge, and that of the
original algorithm, which shares the data model.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import grpc
from google.cloud.datastore_v1.types import datastore, entity

from bench.emulators import PROJECT
from bench.original import CONFIG, NUM_SHARDS, SHARD

RECEIPT: Final = "CountersinkReceipt"
_AT_ONCE: Final = 400
_TRANSACTIONAL: Final = 1
_NOT_FINISHED: Final = 1
_TIMEOUT: Final = 60.0
_OPTIONS: Final = (("grpc.max_receive_message_length", -1),)


class Entities:
    """Of one namespace."""

    def __init__(self, host: str, namespace: str) -> None:
        self._namespace = namespace
        self._channel = grpc.insecure_channel(host, options=_OPTIONS)

    def close(self) -> None:
        self._channel.close()

    def total(self) -> int:
        """The sum of all shards of all counters."""
        return sum(one.entity.properties["count"].integer_value for one in self._all(SHARD))

    def receipts(self) -> int:
        """How many there are."""
        return sum(1 for _ in self._all(RECEIPT, keys_only=True))

    def make_configs(self, counters: Sequence[str], num_shards: int = NUM_SHARDS) -> None:
        for begin in range(0, len(counters), _AT_ONCE):
            request = datastore.CommitRequest.pb()(project_id=PROJECT, mode=_TRANSACTIONAL)
            request.single_use_transaction.read_write.SetInParent()
            for counter in counters[begin : begin + _AT_ONCE]:
                config = request.mutations.add().upsert
                config.key.CopyFrom(self._key(CONFIG, counter))
                config.properties["num_shards"].integer_value = num_shards
            self._call("Commit", request)

    def _all(self, kind: str, *, keys_only: bool = False) -> Iterator[Any]:
        request = datastore.RunQueryRequest.pb()(project_id=PROJECT)
        request.partition_id.project_id = PROJECT
        request.partition_id.namespace_id = self._namespace
        request.query.kind.add().name = kind
        if keys_only:
            request.query.projection.add().property.name = "__key__"
        while True:
            batch = self._call("RunQuery", request).batch
            yield from batch.entity_results
            if batch.more_results != _NOT_FINISHED:
                return
            request.query.start_cursor = batch.end_cursor

    def _key(self, kind: str, name: str) -> Any:
        key = entity.Key.pb()()
        key.partition_id.project_id = PROJECT
        key.partition_id.namespace_id = self._namespace
        key.path.add(kind=kind, name=name)
        return key

    def _call(self, method: str, request: Any) -> Any:
        stub = self._channel.unary_unary(
            f"/google.datastore.v1.Datastore/{method}",
            request_serializer=getattr(datastore, f"{method}Request").pb().SerializeToString,
            response_deserializer=getattr(datastore, f"{method}Response").pb().FromString,
        )
        return stub(request, timeout=_TIMEOUT)

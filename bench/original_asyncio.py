"""The original algorithm by the calls of the generated asyncio client, with raw protobuf and many tasks."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any, Final

import grpc
import uvloop
from google.cloud.datastore_v1.types import datastore, entity

from bench.original import CONFIG, SHARD, Tally, counters, shard_name

_TRANSACTIONAL: Final = 1
_TIMEOUT: Final = 30.0
_METHODS: Final = ("BeginTransaction", "Lookup", "Commit")
_AGAIN: Final = {grpc.StatusCode.ABORTED, grpc.StatusCode.UNAVAILABLE}


def runner(host: str, project: str) -> Callable[..., Tally]:
    def run(namespace: str, number: int, concurrency: int, seconds: float) -> Tally:
        return uvloop.run(_Run(host, project, namespace).all(number, concurrency, seconds))

    return run


class _Run:
    def __init__(self, host: str, project: str, namespace: str) -> None:
        self._host = host
        self._project = project
        self._namespace = namespace
        self._tally = Tally()

    async def all(self, number: int, concurrency: int, seconds: float) -> Tally:
        async with grpc.aio.insecure_channel(self._host) as channel:
            self._calls = {method: _stub(channel, method) for method in _METHODS}
            names = counters(number)
            until = time.perf_counter() + seconds
            async with asyncio.TaskGroup() as tasks:
                for _ in range(concurrency):
                    tasks.create_task(self._one(names, until))
        return self._tally

    async def _one(self, names: list[str], until: float) -> None:
        tally = self._tally
        while (begun := time.perf_counter()) < until:
            await self._increment(random.choice(names), until)
            tally.latencies.append(time.perf_counter() - begun)

    async def _increment(self, counter: str, until: float) -> None:
        # The transaction does not depend on the config, so nobody need wait for it.
        number, transaction = await asyncio.gather(self._number(counter), self._begin())
        key = self._key(SHARD, shard_name(counter, random.randrange(number)))
        while True:
            try:
                await self._add(key, transaction)
            except grpc.aio.AioRpcError as error:
                if error.code() not in _AGAIN:
                    raise
                self._tally.aborted += 1
                if time.perf_counter() > until:
                    return
                transaction = await self._begin()
            else:
                self._tally.committed += 1
                return

    async def _add(self, key: Any, transaction: bytes) -> None:
        request = self._request("Lookup")
        request.keys.append(key)
        request.read_options.transaction = transaction
        answer = await self._call("Lookup", request)
        self._tally.reads += 1
        count = answer.found[0].entity.properties["count"].integer_value if answer.found else 0
        commit = self._request("Commit")
        commit.mode = _TRANSACTIONAL
        commit.transaction = transaction
        shard = commit.mutations.add().upsert
        shard.key.CopyFrom(key)
        shard.properties["count"].integer_value = count + 1
        await self._call("Commit", commit)
        self._tally.writes += 1

    async def _number(self, counter: str) -> int:
        key = self._key(CONFIG, counter)
        request = self._request("Lookup")
        request.keys.append(key)
        answer = await self._call("Lookup", request)
        self._tally.reads += 1
        return int(answer.found[0].entity.properties["num_shards"].integer_value)

    async def _begin(self) -> bytes:
        return bytes((await self._call("BeginTransaction", self._request("BeginTransaction"))).transaction)

    def _request(self, method: str) -> Any:
        return getattr(datastore, f"{method}Request").pb()(project_id=self._project)

    async def _call(self, method: str, request: Any) -> Any:
        return await self._calls[method](request, timeout=_TIMEOUT)

    def _key(self, kind: str, name: str) -> Any:
        key = entity.Key.pb()()
        key.partition_id.project_id = self._project
        key.partition_id.namespace_id = self._namespace
        key.path.add(kind=kind, name=name)
        return key


def _stub(channel: Any, method: str) -> Any:
    return channel.unary_unary(
        f"/google.datastore.v1.Datastore/{method}",
        request_serializer=getattr(datastore, f"{method}Request").pb().SerializeToString,
        response_deserializer=getattr(datastore, f"{method}Response").pb().FromString,
    )

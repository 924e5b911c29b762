"""The channel to Datastore and its calls, in raw protobuf; their errors, and a lower bound of the server's clock."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import grpc
from google.auth.exceptions import GoogleAuthError
from google.cloud.datastore_v1.services.datastore.transports import DatastoreGrpcAsyncIOTransport
from google.cloud.datastore_v1.types import datastore as _types

from shared.datastore.keys import DatastorePlace, Key, delete, name_of, rewrite, unindexed, version_of, write
from shared.model.buckets import BEGINNING, Instant, Monotonic, StoreMillis
from shared.model.errors import AlreadyAppliedError, ContendedError, CountersinkError, RefusedError, TransientError
from shared.model.words import pages
from shared.runtime import metrics
from shared.runtime.clock import Clock, Skew
from shared.runtime.retry import Backoff, insist, tries, within

# A lower bound of the server's clock, learnt from what its responses say. Pure.


_DRIFT: Final = 0.001
"""Our clock may run faster than the server's, but not by so much."""


class ServerTime:
    """The greatest time of any response, plus what has passed since then. It never uses this machine's date."""

    def __init__(self) -> None:
        self._heard = BEGINNING
        self._at = float("-inf")
        self._doubted = True

    def hear(self, micros: Instant, now: Monotonic) -> None:
        if self._doubted or micros >= self.bound(now):
            self._heard, self._at, self._doubted = micros, now, False

    def bound(self, now: Monotonic) -> Instant:
        """The server's clock shows at least this (micros); 0 until it has answered once."""
        if not self._heard:
            return BEGINNING
        return Instant(self._heard + int((now - self._at) * (1 - _DRIFT) * 1_000_000))

    def wait(self, time: Instant, now: Monotonic) -> float:  # noqa: ARG002 (the emulator's differs)
        """Seconds until all commits of that instant can be read. Google's servers wait by themselves."""
        return 0.0

    def age(self, now: Monotonic) -> float:
        """Seconds since a response last improved the bound; infinite while the bound is in doubt."""
        return inf if self._doubted else now - self._at

    def doubt(self) -> None:
        """Note that the server disagreed with the bound. Its next time is believed, even if that is earlier. Until then
        the bound stays, because there is no better one.
        """
        self._doubted = True


LAG_EMULATED: Final = 0.05
"""Seconds. The emulator shows a commit to reads at its time only a little later: up to 0.4 ms was measured. On a
machine with much other work it once took more than 20 ms, and showed a shard before the receipt of the same commit.
"""
MOST_AHEAD: Final = 1.0


class EmulatorTime(ServerTime):
    """The same for the Firestore emulator, which stamps commits up to 0.26 s ahead of its own clock if many write one
    entity. It answers reads at an instant up to 50 ms ahead of its clock, but not with a snapshot. So this machine's
    date tells what the emulator's clock shows, unless they are so far apart that they must be two clocks.

    Google documents `read_time` as a time within the past hour, so none of this concerns its servers.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def bound(self, now: Monotonic) -> Instant:
        return max(self._heard, self._shows(now))

    def wait(self, time: Instant, now: Monotonic) -> float:
        return min(MOST_AHEAD, max(0.0, (time - self._shows(now)) / 1_000_000 + LAG_EMULATED))

    def _shows(self, now: Monotonic) -> Instant:
        told, date = super().bound(now), Instant(int(self._clock.now() * 1_000_000))
        return date if told - MOST_AHEAD * 1_000_000 < date < told else told


def millis(time: Instant) -> StoreMillis:
    """What the store's clock shows at that instant."""
    return StoreMillis(time // 1_000)


def micros(timestamp: Any) -> Instant:
    """A protobuf Timestamp in microseconds since 1970, which are the instants of this store."""
    return Instant(timestamp.seconds * 1_000_000 + timestamp.nanos // 1_000)


# Translates the errors of Datastore to Countersink's own.


_MEANS: Final = {  # except for the last two: until somebody changes the permissions, the quota, or the database
    grpc.StatusCode.PERMISSION_DENIED: "this account may not use the database: grant it the role roles/datastore.user",
    grpc.StatusCode.UNAUTHENTICATED: "no valid credentials",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "a quota is used up",
    grpc.StatusCode.NOT_FOUND: "the project or the database does not exist",
    grpc.StatusCode.FAILED_PRECONDITION: "the database or an index of it is not ready for this",
    grpc.StatusCode.UNIMPLEMENTED: "this server does not know the request",
    grpc.StatusCode.DEADLINE_EXCEEDED: "the server did not answer in time, so try again later",
    grpc.StatusCode.UNAVAILABLE: "the server can't be reached, so try again later",
}
_INVALID: Final = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE}
_FUTURE: Final = re.compile(r"read_time.*future", re.IGNORECASE)
_ENDED: Final = re.compile(r"transaction.*(closed|expired|invalid|no longer)", re.IGNORECASE)
_TOO_LARGE: Final = re.compile(r"message.*(larger|exceeds)", re.IGNORECASE)


class TooEarlyError(TransientError):
    """The requested instant is still in the future of the server's clock."""


class MissingError(CountersinkError):
    """An entity to be updated, or the whole database, is missing; nothing was applied. Stays in the adapter."""


def translate(error: grpc.aio.AioRpcError, commit: Any = None) -> CountersinkError:
    """`commit`: the request, if it is one. Only commits are ever refused for good, and only those with updates or base
    versions depend on what is stored.
    """
    code, details = error.code(), error.details() or ""
    said = f"Datastore: {code.name}: {details}"
    if commit is not None:
        over_versions = any(one.HasField("base_version") for one in commit.mutations)
        if code is grpc.StatusCode.ALREADY_EXISTS:
            return AlreadyAppliedError(f"a receipt of this commit exists: {details}")
        if code is grpc.StatusCode.FAILED_PRECONDITION and over_versions:
            return ContendedError(said)
        if code is grpc.StatusCode.NOT_FOUND and (
            over_versions or any(one.HasField("update") for one in commit.mutations)
        ):
            return MissingError(said)
        if code in _INVALID:
            return TransientError(said) if _ENDED.search(details) else RefusedError(said)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE.search(details):
            return RefusedError(said)
    elif code in _INVALID and _FUTURE.search(details):
        return TooEarlyError(said)
    if code is grpc.StatusCode.ABORTED:
        return ContendedError(said)
    if code in _MEANS:
        return TransientError(f"{_MEANS[code]}: {said}")
    return TransientError(said)


@contextmanager
def translated(commit: Any = None) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise translate(error, commit) from error
    except GoogleAuthError as error:
        raise TransientError(f"no valid credentials for Datastore: {error}") from error
    except grpc.aio.UsageError as error:
        raise TransientError(f"the channel is closed: {error}") from error


MOST_LOOKED_UP: Final = 1_000
DELETES_AT_ONCE: Final = 400
"""Some servers accept 500 mutations in a commit."""
MOST_BYTES_WRITTEN: Final = 9 * 2**20
MOST_BYTES_EMULATED: Final = 4 * 2**20 - 2**16
AHEAD_STEP: Final = 0.01
TIMEOUT: Final = 30.0
_GOOGLE: Final = "datastore.googleapis.com:443"
_METHODS: Final = ("BeginTransaction", "Commit", "Lookup", "Rollback", "RunAggregationQuery", "RunQuery")
_COUNTED_FOR_ONE: Final = 1_000
"""Entries of an index that an aggregation may count for the price of one read."""
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),  # two minutes by default, in which all calls would fail
)
HEARD: Final = 30.0
"""Seconds in which a response that told the server's time is recent enough to decide how old something is."""
FRESH: Final = 20.0
"""Seconds for which a new transaction is surely open. The server closes one that is idle for 60 seconds."""
_COUNT: Final = "count"
_TRANSACTIONAL: Final = 1
_NOT_FINISHED: Final = 1
_NO_MORE: Final = 3
TRIES: Final = 5
_READS: Final = metrics.DATASTORE_OPERATIONS.labels("read")
_WRITES: Final = metrics.DATASTORE_OPERATIONS.labels("write")
_DELETES: Final = metrics.DATASTORE_OPERATIONS.labels("delete")


class Found(NamedTuple):
    """The result of a Lookup of any number of keys. It is of one instant only if a `read_time` was given."""

    entities: Sequence[Any]
    """Raw EntityResults."""
    time: Instant
    """In microseconds. It is not earlier than any instant that the look saw."""


class DatastoreClient:
    """Calls the server of one place. Create it inside the running event loop. All methods raise only Countersink's own
    errors.
    """

    def __init__(self, place: DatastorePlace, clock: Clock, host: str = "") -> None:
        """`host` names an emulator, as in DATASTORE_EMULATOR_HOST. Without it, it connects to Google."""
        self.place = place
        self.clock = clock
        self._channel = grpc.aio.insecure_channel(host, options=_OPTIONS) if host else _channel_of_google()
        self.most_bytes = MOST_BYTES_EMULATED if host else MOST_BYTES_WRITTEN
        self.time = EmulatorTime(clock) if host else ServerTime()
        self.skew = Skew("Datastore's")
        self._ids = {"project_id": place.project, "database_id": place.database}
        self._header = (("x-goog-request-params", "&".join(f"{k}={quote(v, safe='')}" for k, v in self._ids.items())),)
        self._stubs = {
            method: self._channel.unary_unary(
                f"/google.datastore.v1.Datastore/{method}",
                request_serializer=getattr(_types, f"{method}Request").pb().SerializeToString,
                response_deserializer=getattr(_types, f"{method}Response").pb().FromString,
            )
            for method in _METHODS
        }

    async def close(self) -> None:
        await self._channel.close()

    def request(self, method: str) -> Any:
        return getattr(_types, f"{method}Request").pb()(**self._ids)

    def commit_request(self) -> Any:
        """A commit that applies all of its mutations or none, in a transaction of its own that reads nothing."""
        request = self.request("Commit")
        request.mode = _TRANSACTIONAL
        request.single_use_transaction.read_write.SetInParent()
        return request

    async def begin(self) -> bytes:
        """Begin a transaction. The server closes it after 270 seconds, or when it is idle for 60, so no commit in it
        can arrive later. It costs a round trip and is not billed.
        """
        request = self.request("BeginTransaction")
        request.transaction_options.read_write.SetInParent()
        return bytes((await self._call("BeginTransaction", request)).transaction)

    async def rollback(self, transaction: bytes) -> None:
        """End a transaction that nothing was committed in, so that nobody waits for what it has read."""
        request = self.request("Rollback")
        request.transaction = transaction
        await self._call("Rollback", request)

    async def commit(self, request: Any) -> Any:
        """Raises `MissingError` if an entity to be updated is gone, and `ContendedError` if one has another version."""
        if request.ByteSize() > self.most_bytes:
            raise RefusedError(f"a commit of {request.ByteSize()} bytes is larger than {self.most_bytes}")
        begun = self.clock.monotonic()
        try:
            response = await self._call("Commit", request)
        except RefusedError as error:
            if request.transaction and self.clock.monotonic() - begun > FRESH:
                raise TransientError(f"the transaction was open for too long: {error}") from error
            raise
        deletes = sum(mutation.HasField("delete") for mutation in request.mutations)
        _DELETES.inc(deletes)
        _WRITES.inc(len(request.mutations) - deletes)
        if response.HasField("commit_time"):
            self._hear(micros(response.commit_time))
        return response

    async def commit_over(self, request: Any) -> Any:
        """Commit changes of entities that were read. `ContendedError` if any of these entities was written since."""
        try:
            return await self.commit(request)
        except (AlreadyAppliedError, MissingError) as error:
            raise ContendedError(str(error)) from error

    async def overwrite(self, key: Key, found: Any, name: str, **value: Any) -> None:
        """Replace the entity that was `found` by one with this property alone, or make it if that is None. `value`: one
        field of a protobuf `Value`. Raises `ContendedError` if the entity was written since.
        """
        request = self.commit_request()
        entity = write(request, self.place.entity(key), version_of(found))
        for field, content in value.items():
            setattr(unindexed(entity, name), field, content)
        await self.commit_over(request)

    def told(self) -> Instant:
        """The server's clock shows at least this; 0 until it has answered once."""
        return self.time.bound(self.clock.monotonic())

    async def now(self, age: float) -> Instant:
        """The server's time: the last that it told within `age` seconds, plus what has passed since; or that of a look
        that begins now.
        """
        if self.time.age(self.clock.monotonic()) > age:
            await self.look_now()
        return self.told()

    async def look_now(self) -> Instant:
        """The instant of a look that begins now."""
        return (await self.look_up([self.place.nothing()])).time

    def _hear(self, time: Instant) -> None:
        self.time.hear(time, self.clock.monotonic())
        self.skew.saw(self.clock.now() - time / 1_000_000)

    async def look_up_one(self, key: Key, *, read_time: Instant | None = None, transaction: bytes = b"") -> Any:
        """An entity, as a whole EntityResult; None if it does not exist. With a transaction: if it changes before that
        commits, the commit fails.
        """
        return next(iter((await self._look_up([key], read_time, transaction)).entities), None)

    async def find(self, keys: Iterable[Key], *, read_time: Instant | None = None) -> dict[tuple[str, str], Any]:
        """Look up any number of keys. Returns what there is, by kind and name."""
        return {name_of(one.entity.key): one for one in (await self.look_up(keys, read_time=read_time)).entities}

    async def look_up(self, keys: Iterable[Key], *, read_time: Instant | None = None) -> Found:
        """Look up any number of keys: strongly consistent, or at a `read_time` (microseconds)."""
        ids = [*keys]
        if len(ids) <= MOST_LOOKED_UP:
            return await self._look_up(ids, read_time)
        parts = await asyncio.gather(*[self._look_up(some, read_time) for some in pages(ids, MOST_LOOKED_UP)])
        entities = [entity for part in parts for entity in part.entities]
        return Found(entities, max(part.time for part in parts))

    async def _look_up(self, keys: Sequence[Key], read_time: Instant | None, transaction: bytes = b"") -> Found:
        entities: list[Any] = []
        time = BEGINNING
        while keys:
            request = self.request("Lookup")
            request.keys.extend(keys)
            await self._read_at(request, read_time)
            if transaction:
                request.read_options.transaction = transaction
            # Wait if the server's clock was put back, or if commits ran ahead of it: a later look is as good.
            limit, backoff = within(MOST_AHEAD, self.clock), Backoff(AHEAD_STEP, AHEAD_STEP)
            response = await insist(partial(self._call, "Lookup", request), TooEarlyError, limit, backoff)
            if read_time is None and response.HasField("read_time"):
                told = micros(response.read_time)
                self._hear(told)
                time = max(time, told)
            entities += response.found
            _READS.inc(len(response.found) + len(response.missing))
            keys = response.deferred
        return Found(entities, time if read_time is None else read_time)

    async def delete_seen(self, seen: Sequence[Any]) -> int:
        """Delete entities that were seen, as whole EntityResults, and return how many. What was written since stays:
        another process may have deleted it meanwhile, and made another one of the same key.
        """
        deleted = 0
        for some in pages(seen, DELETES_AT_ONCE):
            deleted += await self._delete_seen(some)
        return deleted

    async def _delete_seen(self, seen: Sequence[Any]) -> int:
        request = self.commit_request()
        for one in seen:
            delete(request, one)
        try:
            await self.commit_over(request)
        except ContendedError:
            if len(seen) == 1:
                return 0
            half = len(seen) // 2  # until those that were written are alone
            return await self._delete_seen(seen[:half]) + await self._delete_seen(seen[half:])
        return len(seen)

    async def delete_parts(self, keys: Sequence[Key], owner: Any, *, and_owner: bool = False) -> None:
        """Delete up to `DELETES_AT_ONCE` entities that belong to `owner`, whatever their versions; `and_owner`:
        the owner, too. `ContendedError` if the owner, a whole EntityResult, was written or deleted since it was seen;
        then nothing was deleted.
        """
        request = self.commit_request()
        if and_owner:
            delete(request, owner)
        else:
            rewrite(request, owner)
        for key in keys:
            request.mutations.add().delete.CopyFrom(key)
        await self.commit_over(request)

    async def query(self, query: Any, *, read_time: Instant | None = None) -> list[Any]:
        """All results, or `limit` of them: strongly consistent, or at a `read_time` (microseconds)."""
        results: list[Any] = []
        limit = query.limit.value
        while True:
            request = self.request("RunQuery")
            request.partition_id.CopyFrom(self.place.partition)
            request.query.CopyFrom(query)
            request.query.limit.value = limit - len(results)
            await self._read_at(request, read_time)
            batch = (await self._call("RunQuery", request)).batch
            results += batch.entity_results
            # A query for keys alone costs one read, and else each entity does.
            _READS.inc(1 if query.projection else max(len(batch.entity_results), 1))
            if batch.more_results != _NOT_FINISHED or len(results) >= limit:
                return results
            query.start_cursor = batch.end_cursor

    async def names(self, query: Any) -> list[str]:
        """The names of the entities that the query has, as `query` returns them."""
        return [name_of(one.entity.key)[1] for one in await self.query(query)]

    async def count(self, query: Any, most: int) -> int:
        """How many results the query has; `most` if it has more. Strongly consistent."""
        request = self.request("RunAggregationQuery")
        request.partition_id.CopyFrom(self.place.partition)
        request.aggregation_query.nested_query.CopyFrom(query)
        request.aggregation_query.aggregations.add(alias=_COUNT).count.up_to.value = most
        (result,) = (await self._call("RunAggregationQuery", request)).batch.aggregation_results
        counted: int = result.aggregate_properties[_COUNT].integer_value
        _READS.inc(1 + counted // _COUNTED_FOR_ONE)
        return counted

    async def pages(self, query: Any, *, read_time: Instant | None) -> AsyncIterator[Sequence[Any]]:
        """All results, as pages of `query.limit` whole entities; at the instant `read_time` (micros), if given."""
        while True:
            request = self.request("RunQuery")
            request.partition_id.CopyFrom(self.place.partition)
            request.query.CopyFrom(query)
            await self._read_at(request, read_time)
            # A scan takes many calls, so one that fails must not end it.
            call = partial(self._call, "RunQuery", request)
            batch = (await insist(call, TransientError, tries(TRIES), Backoff())).batch
            if batch.entity_results:
                _READS.inc(1 if query.projection else len(batch.entity_results))
                yield batch.entity_results
            elif batch.more_results != _NOT_FINISHED:
                return
            if batch.more_results == _NO_MORE:
                return
            query.start_cursor = batch.end_cursor

    async def _read_at(self, request: Any, read_time: Instant | None) -> None:
        if read_time is None:
            return
        if wait := self.time.wait(read_time, self.clock.monotonic()):
            await asyncio.sleep(wait)
        request.read_options.read_time.FromMicroseconds(read_time)

    async def _call(self, method: str, request: Any) -> Any:
        with translated(request if method == "Commit" else None):
            return await self._stubs[method](request, metadata=self._header, timeout=TIMEOUT)


def _channel_of_google() -> Any:
    """A channel with the default credentials. A whole transport would add an interceptor to each call."""
    with translated():
        return DatastoreGrpcAsyncIOTransport.create_channel(_GOOGLE, options=_OPTIONS)

"""Keeps jobs in Datastore. A job's progress is spread over several entities, its books: one would slow its tasks."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import orjson

from shared.datastore.client import DELETES_AT_ONCE, HEARD, DatastoreClient, MissingError, millis
from shared.datastore.keys import (
    EXPIRES,
    KEY,
    DatastorePlace,
    Key,
    Operator,
    expired,
    integer,
    name_of,
    query_of,
    rewrite,
    unindexed,
    where,
    within,
    write,
)
from shared.model.buckets import StoreMillis, WallMillis
from shared.model.errors import AlreadyAppliedError, ContendedError, TransientError
from shared.model.jobs import (
    DONE,
    EXPORT,
    FAILED,
    FORGOTTEN,
    MOST_RUNNING,
    RUNNING,
    Done,
    Job,
    JobState,
    Progress,
    check_exports,
    check_running,
    noted,
    owner_of,
    recalled,
    share_of,
    span_of,
    span_text,
)
from shared.runtime.retry import after_conflict, insist, tries

BOOKS: Final = 16
"""Entities over which the progress of a job is spread, since one entity takes about one write a second."""
TRIES: Final = 20
_NUMBERS: Final = ("tasks", "visited", "changed", "failed", "depth", "share")
_OPEN: Final = "open"
_EXAMPLES: Final = "examples"
_STATE: Final = "state"
_RUNS: Final = "running"
"""Its owner, if it has one, in a job that has not ended. This and the next one are indexed."""
_KEPT: Final = "kept"
"""Its owner, in an export that has not failed."""
MOST_EXPORTS_READ: Final = 1_000
"""Exports that are read to find out when the first of them expires."""
_SPAN: Final = "span"
_EXPORT_BY_TIME: Final = "export by time"
"""The kind of an export with a span. Processes that know no spans leave jobs of unknown kinds to others."""
_NOTE: Final = "note"
_CHUNK: Final = "chunk"
T = TypeVar("T")
MOST_LATEST: Final = 1_000
"""Jobs among which the latest are looked for."""


class DatastoreJobs:
    """Changes jobs in commits of their own, over versions that were read, which works on every server."""

    def __init__(
        self,
        client: DatastoreClient,
        pick: Callable[[int], int] = random.randrange,
        *,
        most_exports: int = 1_000,
    ) -> None:
        self._client = client
        self._place = client.place
        self._pick = pick
        self._most_exports = most_exports
        self._creating = asyncio.Lock()

    async def create(self, job: Job) -> tuple[JobState, bool]:
        async with self._creating:  # so that each finds those that were created before it
            if (there := await self.get(job.id)) is not None:
                return there, False
            await self._check_shares(job)
            return await _insist(partial(self._create, job), job.id)

    async def _check_shares(self, job: Job) -> None:
        """Processes may each create one more than this allows."""
        if owner := owner_of(job.id):
            check_running(owner, len(await self._marked(_RUNS, owner, MOST_RUNNING)))
        if job.kind == EXPORT:
            share = share_of(owner, self._most_exports)
            kept = await self._marked(_KEPT, owner, share)
            if len(kept) >= share:
                found = (await self._client.look_up(kept[:MOST_EXPORTS_READ])).entities
                expires = min((_job(one.entity).expires for one in found), default=StoreMillis(0))
                left = (expires - millis(await self._client.now(HEARD))) / 1_000
                check_exports(owner, "MAX_EXPORTS", self._most_exports, len(kept), left=left)

    async def _marked(self, mark: str, owner: str, limit: int) -> list[Key]:
        query = query_of(self._place.kinds.job, limit, keys_only=True)
        return await self._keys(where(query, mark, Operator.EQUAL, string_value=owner))

    async def _create(self, job: Job) -> tuple[JobState, bool]:
        new = JobState(job, open=1)
        try:
            await insert(self._client, new)
        except AlreadyAppliedError as error:
            if (there := await self.get(job.id)) is None:
                raise ContendedError("it was deleted just now") from error
            return there, False
        return new, True

    async def get(self, job: str) -> JobState | None:
        """One look may see the books at different instants, so that they add up to no open task although there always
        was one. Two looks that find the same versions saw the same instant, one between them.
        """
        found = await self._look_at(job)
        if job not in found:
            return None
        (state,) = states_in(one.entity for one in found.values())
        if state.open <= 0:
            same = {name: one.version for name, one in (await self._look_at(job)).items()}
            if state.open or same != {name: one.version for name, one in found.items()}:
                return replace(state, open=1)
        return state

    async def latest(self, owner: str, limit: int) -> Sequence[JobState]:
        """The latest of those that expire last, since all jobs but exports live equally long."""
        query = query_of(self._place.kinds.job, MOST_LATEST, order=EXPIRES, descending=True)
        found = [_job(one.entity) for one in await self._client.query(query)]
        theirs = sorted((job for job in found if owner_of(job.id) == owner), key=lambda job: -job.created)
        states = await asyncio.gather(*(self.get(job.id) for job in theirs[:limit]))
        return [state for state in states if state is not None]

    async def record(self, done: Done) -> Done | None:
        return await _insist(partial(self._record, done), done.task.job)

    async def _record(self, done: Done) -> Done | None:
        task = done.task
        book = await self._client.look_up_one(self._book(task.job, self._pick(BOOKS)))
        if book is None:
            return None
        request = self._client.commit_request()
        kept = write(request, self._place.entity(self._task(task.job, task.range.after)), 0)
        for name, value in ((_NOTE, noted(done)), (_CHUNK, done.chunk)):
            unindexed(kept, name).blob_value = value
        progress = _read(book.entity).plus(done.progress)
        changed = rewrite(request, book)
        _write(changed, progress, open_=integer(book.entity, _OPEN) + done.opens)
        try:
            await self._client.commit(request)
        except AlreadyAppliedError as error:
            there = await self.recorded(task.job, [task.range.after])
            if not there:
                raise TransientError("the record of a task was deleted just now") from error
            return there[task.range.after]
        except MissingError:
            return None
        return done

    async def recorded(self, job: str, begins: Collection[str]) -> Mapping[str, Done]:
        found = (await self._client.look_up(self._task(job, begin) for begin in begins)).entities
        done = [recalled(_blob(one.entity, _NOTE), _blob(one.entity, _CHUNK)) for one in found]
        return {one.task.range.after: one for one in done}

    async def end(self, job: str, state: str, when: WallMillis, why: str = "") -> None:
        await _insist(partial(self._end, job, state, when, why, unless=(DONE, FAILED)), job)

    async def _end(self, job: str, state: str, when: WallMillis, why: str, *, unless: Collection[str]) -> None:
        if (found := await self._client.look_up_one(_key(self._place, job))) is not None:
            await self._change(found, state, when, why, unless=unless)

    async def _change(self, seen: Any, state: str, when: WallMillis, why: str, *, unless: Collection[str]) -> None:
        """Set the state of a job that was seen. `ContendedError` if it was written since."""
        if seen.entity.properties[_STATE].string_value in unless:
            return
        request = self._client.commit_request()
        changed = rewrite(request, seen)
        changed.properties[_STATE].string_value = state
        changed.properties["finished"].integer_value = when
        for mark in (_RUNS,) if state == DONE else (_RUNS, _KEPT):
            if mark in changed.properties:
                del changed.properties[mark]
        changed.properties["why"].string_value = why
        with suppress(MissingError):
            await self._client.commit(request)

    async def chunks(self, job: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        kind, prefix = self._place.kinds.task, f"{job}:"
        query = query_of(kind, limit, order=KEY, keys_only=True)
        keys = await self._keys(within(query, self._place, prefix, after and prefix + after))
        found = (await self._client.look_up(keys)).entities
        chunks = {name_of(one.entity.key)[1].removeprefix(prefix): _blob(one.entity, _CHUNK) for one in found}
        return sorted(chunks.items())

    async def discard(self, job: str, when: WallMillis, why: str, limit: int) -> int:
        await _insist(partial(self._end, job, FAILED, when, why, unless=(FAILED,)), job)
        seen = await self._client.look_up_one(_key(self._place, job))
        tasks = await self._tasks(job, min(limit, DELETES_AT_ONCE))
        if seen is None or not tasks:
            return 0
        await self._client.delete_parts(tasks, seen)
        return len(tasks)

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        gone = 0
        for seen in await self._client.query(expired(self._place.kinds.job, now, limit)):
            with suppress(ContendedError):  # another process deleted it, and perhaps a new job has its id
                gone += await self._forget(seen, now, limit - gone)
            if gone >= limit:
                break
        return gone

    async def _forget(self, seen: Any, now: StoreMillis, limit: int) -> int:
        """Delete up to `limit` tasks of an expired job, and then the job. `ContendedError` if it was written since."""
        _, job = name_of(seen.entity.key)
        await self._change(seen, FAILED, now, FORGOTTEN, unless=(FAILED,))
        there = await self._client.look_up_one(_key(self._place, job))
        if there is None or _job(there.entity).expires >= now:
            raise ContendedError("it is another job of the same id")
        room = min(limit, DELETES_AT_ONCE - BOOKS)
        tasks = await self._tasks(job, room)
        if len(tasks) == room:  # there may be more
            await self._client.delete_parts(tasks, there)
            return room
        await self._client.delete_parts([*tasks, *self._books(job)], there, and_owner=True)
        return len(tasks) + 1

    async def _look_at(self, job: str) -> dict[str, Any]:
        """The job and its books, by name."""
        keys = [_key(self._place, job), *self._books(job)]
        found = (await self._client.look_up(keys)).entities
        return {name_of(one.entity.key)[1]: one for one in found}

    async def _tasks(self, job: str, limit: int) -> list[Key]:
        """Keys of the records of a job's tasks. Ids of jobs contain no colon."""
        kind = self._place.kinds.task
        query = query_of(kind, limit, order=KEY, keys_only=True)
        where(query, KEY, Operator.GREATER_THAN_OR_EQUAL, key_value=self._task(job, ""))
        where(query, KEY, Operator.LESS_THAN, key_value=self._place.key(kind, f"{job};"))
        return await self._keys(query)

    async def _keys(self, query: Any) -> list[Key]:
        found = await self._client.query(query)
        return [one.entity.key for one in found]

    def _book(self, job: str, number: int) -> Key:
        return _key(self._place, f"{job}:{number}")

    def _books(self, job: str) -> Iterable[Key]:
        return (self._book(job, number) for number in range(BOOKS))

    def _task(self, job: str, begin: str) -> Key:
        return self._place.key(self._place.kinds.task, f"{job}:{begin}")


async def _insist(step: Callable[[], Awaitable[T]], job: str) -> T:
    """Repeat the step while others are first."""
    try:
        return await insist(step, ContendedError, tries(TRIES), after_conflict())
    except ContendedError as error:
        raise ContendedError(f"job {job} is contended: {error}") from error


def _key(place: DatastorePlace, name: str) -> Key:
    return place.key(place.kinds.job, name)


async def insert(client: DatastoreClient, state: JobState) -> None:
    """Keep a job with its books. `AlreadyAppliedError` if its id exists."""
    request = client.commit_request()
    request.mutations.add().insert.CopyFrom(entity_of(client.place, state))
    for number in range(BOOKS):
        book = write(request, client.place.entity(_key(client.place, f"{state.job.id}:{number}")), 0)
        _write(book, Progress() if number else state.progress, open_=0 if number else state.open)
    await client.commit(request)


def entity_of(place: DatastorePlace, state: JobState) -> Any:
    job = state.job
    entity = place.entity(_key(place, job.id))
    kind = _EXPORT_BY_TIME if job.span is not None else job.kind
    for name, text in (("kind", kind), ("prefix", job.prefix), (_STATE, state.state), ("why", state.why)):
        unindexed(entity, name).string_value = text
    if job.span is not None:
        unindexed(entity, _SPAN).string_value = span_text(job.span)
    for name, number in (("delta", job.number), ("created", job.created), ("finished", state.finished)):
        unindexed(entity, name).integer_value = number
    entity.properties[EXPIRES].timestamp_value.FromMilliseconds(job.expires)
    if (owner := owner_of(job.id)) and state.state == RUNNING:
        entity.properties[_RUNS].string_value = owner
    if job.kind == EXPORT:
        entity.properties[_KEPT].string_value = owner
    return entity


def states_in(entities: Iterable[Any]) -> Sequence[JobState]:
    """The jobs among these entities, with what is in their books. No id has a colon."""
    jobs: dict[str, Any] = {}
    books: dict[str, list[Any]] = {}
    for entity in entities:
        job, colon, _ = name_of(entity.key)[1].partition(":")
        if colon:
            books.setdefault(job, []).append(entity)
        else:
            jobs[job] = entity
    states = []
    for job, entity in jobs.items():
        its, progress = books.get(job, []), Progress()
        for book in its:
            progress = progress.plus(_read(book))
        open_ = sum(integer(book, _OPEN) for book in its)
        state, why = entity.properties[_STATE].string_value, entity.properties["why"].string_value
        states.append(JobState(_job(entity), open_, progress, state, integer(entity, "finished"), why))
    return states


def _job(entity: Any) -> Job:
    properties = entity.properties
    kind = properties["kind"].string_value
    return Job(
        name_of(entity.key)[1],
        EXPORT if kind == _EXPORT_BY_TIME else kind,
        properties["prefix"].string_value,
        integer(entity, "delta"),
        integer(entity, "created"),
        StoreMillis(properties[EXPIRES].timestamp_value.ToMilliseconds()),
        span_of(properties[_SPAN].string_value) if _SPAN in properties else None,
    )


def _read(book: Any) -> Progress:
    numbers = [integer(book, name) for name in _NUMBERS]
    return Progress._make((*numbers, tuple(map(tuple, orjson.loads(_blob(book, _EXAMPLES))))))


def _write(book: Any, progress: Progress, *, open_: int) -> None:
    *numbers, examples = progress
    for name, number in ((_OPEN, open_), *zip(_NUMBERS, numbers, strict=True)):
        unindexed(book, name).integer_value = number
    unindexed(book, _EXAMPLES).blob_value = orjson.dumps(examples)


def _blob(entity: Any, name: str) -> bytes:
    return bytes(entity.properties[name].blob_value)

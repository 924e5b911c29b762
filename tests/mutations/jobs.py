"""Mutations of jobs: their tasks, their receipts, and when they are finished."""

import asyncio
import secrets
from dataclasses import replace
from typing import Any

from flusher.jobs import PageOutcome
from tests.mutations.mutation import LOOPS, Instead, altered, around, calling, mutation, replaced, returning_later
from tests.mutations.places import ALL_NAMES, DAILY, JOB_WORKER, JOBS, JOBS_OVER_HTTP, KEPT_JOBS

_UNDER_WAY: set[Any] = set()


@mutation("a task of a job is done with before its counters are changed", "flusher.jobs.Worker._visit", JOBS)
def _(visit_task: Any) -> Any:
    def later(visit: Any) -> Any:
        async def mutant(job: Any, page: Any) -> PageOutcome:
            _UNDER_WAY.add(asyncio.ensure_future(visit(job, page)))
            return PageOutcome(len(page), len(page))

        return mutant

    async def mutant(self: Any, job: Any, task: Any) -> Any:
        visits = {kind: later(visit) for kind, visit in self.visits.items()}
        return await visit_task(altered(self, visits=visits), job, task)

    return mutant


@around("a task of a job is acknowledged before it is done", "flusher.jobs.Runner._done", JOBS)
async def _(done: Any, self: Any, lease: Any) -> Any:
    await self.tasks.ack([lease.token])
    return await done(self, lease)


mutation("what a job adds has no receipts", "flusher.jobs.Adding._commit", JOBS)(
    lambda commit: lambda self, *what: replace(commit(self, *what), receipts=())
)

mutation("one receipt of a page is taken for all of them", "flusher.jobs.Adding._without_done", JOB_WORKER)(
    returning_later({})
)


@replaced("a job visits only what is in the store", "shared.counters.reader.AllNames.page", JOBS)
async def _(self: Any, prefix: str, after: str, limit: int, until: str | None = None, **__: Any) -> Any:
    return await self._store.names(prefix, after, limit, until)


@around("a list asks the store before the overlay", "shared.counters.reader.AllNames.page", ALL_NAMES)
async def _(page: Any, self: Any, prefix: str, after: str, limit: int, until: str | None = None, **more: Any) -> Any:
    stored = await self._store.names(prefix, after, limit, until)
    return await page(
        altered(self, _store=Instead(self._store, names=returning_later(stored)(None))),
        prefix,
        after,
        limit,
        until,
        **more,
    )


@replaced("an add takes a counter that is only pending for none", "flusher.jobs.existing", JOBS)
async def _(store: Any, _: Any, names: Any, **__: Any) -> Any:
    deleted = await store.deleted_among(names)
    return {name: number for name, number in (await store.shards(names)).items() if name not in deleted}


@replaced("a job adds to what is left of deleted counters", "flusher.jobs.existing", JOBS_OVER_HTTP)
async def _(store: Any, _: Any, names: Any, **__: Any) -> Any:
    return await store.shards(names)


@around(
    "a job looks whether counters are deleted after it looked whether they are there",
    "flusher.jobs.existing",
    JOB_WORKER,
)
async def _(existing: Any, store: Any, reader: Any, names: Any, **options: Any) -> Any:
    there = await store.shards(names)
    return await existing(Instead(store, shards=returning_later(there)(None)), reader, names, **options)


mutation(
    "a job resets under a receipt of each visit", "shared.counters.setter.Setter.set_existing", JOBS_OVER_HTTP, JOBS
)(
    lambda set_existing: (
        lambda self, counter, wish, receipt: set_existing(self, counter, wish, receipt + secrets.token_hex())
    )
)

mutation("a job compacts under no receipt of its own", "shared.counters.setter.Compactor.compact", JOBS_OVER_HTTP)(
    lambda compact: lambda self, counter, num_shards, stamp=None: compact(self, counter, num_shards)
)


@around("a job compacts beside an ndb application", "shared.counters.jobs.JobStarter.start", JOBS_OVER_HTTP)
async def _(start: Any, self: Any, *what: Any, **how: Any) -> Any:
    compactor = Instead(self.compactor, check=lambda: None)
    return await start(altered(self, compactor=compactor), *what, **how)


@replaced(
    "what a file's queue is given back is handed out again at once",
    "shared.sqlite.jobs.SqliteTasks.give_back",
    KEPT_JOBS,
)
async def _(self: Any, tokens: Any) -> None:
    rows = [token.split(".") for token in tokens]
    free = "UPDATE tasks SET until = 0 WHERE seq = ? AND attempt = ?"
    await self._database.write(lambda db: db.executemany(free, rows).rowcount)


mutation("a task that can't be done keeps its place", "flusher.jobs.Runner._done", JOB_WORKER, LOOPS)(
    calling(TRIES=10**9)
)
mutation("the children of a task that was recorded are not published again", "flusher.jobs.Worker._left", JOB_WORKER)(
    returning_later(())
)

mutation(
    "who goes through a job once more stops at what is done",
    "flusher.jobs.Worker._left",
    JOB_WORKER,
)(lambda left: lambda self, task, done: left(self, task._replace(again=False), done))


@around("a job is finished while tasks are open", "flusher.jobs.Worker._finish", JOBS)
async def _(finish: Any, self: Any, job: Any) -> None:
    async def get(id_: str) -> Any:
        standing = await self.jobs.get(id_)
        return None if standing is None else replace(standing, open=0)

    await finish(altered(self, jobs=Instead(self.jobs, get=get)), job)


@around("a second split of a task is believed", "shared.sqlite.jobs.SqliteJobs.record", KEPT_JOBS)
async def _(record: Any, self: Any, done: Any) -> Any:
    return None if await record(self, done) is None else done


mutation("a job that is older than its receipts goes on", "flusher.jobs.Worker._in_time", JOB_WORKER, JOBS)(
    returning_later(True)
)

mutation("a job deletes what was counted lately", "shared.counters.setter.ChangeRequest.passes", JOBS_OVER_HTTP)(
    lambda _: lambda self, reading: not reading.exists
)
mutation("a job deletes what is pending", "shared.model.words.Reading.is_unused_since", JOBS_OVER_HTTP)(
    lambda _: lambda self, when: 0 < self.updated <= when
)


@around("a result is read although it may have expired", "shared.counters.jobs.JobResults.page", JOBS_OVER_HTTP)
async def _(page: Any, self: Any, *which: Any) -> Any:
    return await page(altered(self, _store=Instead(self._store, now=returning_later(0)(None))), *which)


@around("the last line of a page is left out", "shared.counters.jobs.JobResults.page", JOBS_OVER_HTTP)
async def _(page: Any, self: Any, *which: Any) -> Any:
    lines, after = await page(self, *which)
    return (b"".join(lines.splitlines(keepends=True)[:-1]) if after else lines), after


mutation("each flusher starts a daily job of its own", "flusher.cleanup.id_of", DAILY)(
    lambda id_of: lambda prefix, day: id_of(prefix, day) + secrets.token_hex(4)
)
mutation("a daily job whose starter was killed stays where it is", "flusher.cleanup.DailyExpiry._job", DAILY)(
    calling(REPAIR=10**9)
)

"""The routes of jobs. A job visits all counters under a prefix; flushers do the work."""

from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from ingest.access.audit import note
from ingest.access.caller import CALLER
from ingest.http.bodies import Bodies
from ingest.http.problems import Problem
from ingest.http.requests import Query, idempotency_key_of, page_token, page_token_of, unescape
from ingest.http.responses import JSON, SECURE, line
from ingest.parsing.json_object import Flaw, ObjectShape, or_null
from shared.config.settings import flaw_of_shards
from shared.counters.series import SpanError
from shared.counters.start_job import JobStarter
from shared.model.buckets import LENGTHS
from shared.model.errors import NotAloneError
from shared.model.instants import millis_of
from shared.model.jobs import DONE, EXPORT, KINDS, NUMBERS, JobState, flaw_of_job, flaw_of_prefix, said
from shared.model.spans import Span
from shared.model.words import flaw_of_delta
from shared.ports.jobs import Jobs
from shared.runtime.ids import mint, of_key

MOST_LISTED: Final = 100
"""Jobs in a list."""
CHUNKS: Final = 4
"""Chunks of an export in one answer. A chunk has at most 1,000 counters."""


class JobRoutes:
    """Starts, shows and stops jobs. Starting a job again under its id answers with its present state."""

    def __init__(self, jobs: Jobs, starter: JobStarter, bodies: Bodies, max_shards: int) -> None:
        self._jobs = jobs
        self._starter = starter
        self._bodies = bodies
        fields: dict[str, Flaw] = {
            "kind": _flaw_of_kind,
            "prefix": flaw_of_prefix,
            "delta": flaw_of_delta,
            "shards": partial(flaw_of_shards, most=max_shards),
            "by": _flaw_of_by,
            "from": _flaw_of_instant,
            "to": _flaw_of_instant,
            "id": or_null(flaw_of_job),
        }
        self._shape = ObjectShape('{"kind": …, "prefix": …}', fields, required=("kind", "prefix"))

    async def post(self, request: web.BaseRequest, query: Query) -> web.Response:
        """POST /v1/jobs"""
        query.done()
        key = idempotency_key_of(request)
        asked = await self._bodies.read_one(request, self._shape.read)
        id_ = asked.get("id") or (of_key(key) if key else mint())
        kind, prefix = asked["kind"], asked["prefix"]
        number, span = _number_of(kind, asked), _span_of(kind, asked)
        caller = request[CALLER]
        caller.check_prefix(prefix)
        note(caller, f"start the job {id_}: {kind} the counters under {prefix!r}")
        try:
            standing, new = await self._starter.start(kind, prefix, number, span=span, id_=caller.job(id_))
        except SpanError as error:
            raise Problem(422, str(error), field=error.field) from None
        except NotAloneError as error:
            raise Problem(409, str(error)) from None
        job = standing.job
        if not job.asks(kind, prefix, number, span):
            caller.check_prefix(job.prefix)
            raise Problem(409, f"{job._replace(id=id_).taken()}; choose another id", field="id")
        return self._answer(standing, id_, 202 if new else 200, Location=f"/v1/jobs/{id_}")

    async def latest(self, request: web.BaseRequest, query: Query) -> web.Response:
        """GET /v1/jobs"""
        query.done()
        caller = request[CALLER]
        found = await self._jobs.latest(caller.owner, MOST_LISTED)
        jobs = [self._said(one, one.job.id.rpartition("/")[2]) for one in found if caller.may_use(one.job.prefix)]
        return web.Response(body=line(orjson.dumps({"jobs": jobs})), headers=JSON)

    async def get(self, request: web.BaseRequest, rest: str, query: Query) -> web.Response:
        """GET /v1/jobs/{id}, GET /v1/jobs/{id}/export"""
        segment, slash, part = rest.partition("/")
        if slash and part != "export":
            raise Problem(404, "there is no such path; /openapi.json lists all paths")
        after = page_token_of(query) if slash else ""
        query.done()
        id_ = _id_of(segment)
        caller = request[CALLER]
        standing = _known(await self._jobs.get(caller.job(id_)), id_)
        caller.check_prefix(standing.job.prefix)
        if slash:
            return await self._export(standing, after)
        return self._answer(standing, id_)

    async def stop(self, request: web.BaseRequest, segment: str, query: Query) -> web.Response:
        """DELETE /v1/jobs/{id}"""
        query.done()
        id_ = _id_of(segment)
        caller = request[CALLER]
        stored = caller.job(id_)
        caller.check_prefix(_known(await self._jobs.get(stored), id_).job.prefix)
        note(caller, f"stop the job {id_}")
        return self._answer(_known(await self._starter.stop(stored), id_), id_)

    def _answer(self, standing: JobState, id_: str, status: int = 200, **headers: str) -> web.Response:
        return web.Response(status=status, body=line(orjson.dumps(self._said(standing, id_))), headers=JSON | headers)

    def _said(self, standing: JobState, id_: str) -> dict[str, Any]:
        """`id_` is the job's id as its owner knows it."""
        return said(standing, sees_pending=self._starter.sees_pending) | {"id": id_}

    async def _export(self, standing: JobState, after: str) -> web.Response:
        """Some chunks of what an export has written, in order of the names."""
        job = standing.job
        _check_readable(standing)
        chunks = await self._jobs.chunks(job.id, after, CHUNKS)
        _check_readable(_known(await self._jobs.get(job.id), job.id))  # somebody may be deleting it
        headers = {"Content-Type": "application/x-ndjson", **SECURE}
        if len(chunks) == CHUNKS:
            headers["Next-Page-Token"] = page_token(chunks[-1][0])
        return web.Response(body=b"".join(chunk for _, chunk in chunks), headers=headers)


def _flaw_of_kind(value: object) -> str | None:
    return None if value in KINDS else f"must be {' or '.join(map(repr, KINDS))}"


def _number_of(kind: str, asked: dict[str, Any]) -> int:
    """What a job of this kind adds or how many shards it leaves; 0 for kinds without a number."""
    for its_kind, field in NUMBERS.items():
        if kind == its_kind and field not in asked:
            raise Problem(422, f"'{field}' is missing: jobs of kind '{kind}' need it", field=field)
        if kind != its_kind and field in asked:
            raise Problem(422, f"'{field}' belongs to jobs of kind '{its_kind}': leave it out", field=field)
    return asked[NUMBERS[kind]] if kind in NUMBERS else 0


def _flaw_of_by(value: object) -> str | None:
    return None if value in [*LENGTHS] else f"must be {' or '.join(map(repr, LENGTHS))}"


def _flaw_of_instant(value: object) -> str | None:
    try:
        millis_of(value if type(value) is str else "")
    except ValueError as error:
        return str(error)
    return None


def _span_of(kind: str, asked: dict[str, Any]) -> Span | None:
    """What an export by time asks for."""
    for field in ("by", "from", "to"):
        if field in asked and kind != EXPORT:
            raise Problem(422, f"'{field}' belongs to jobs of kind '{EXPORT}': leave it out", field=field)
        if field in asked and "by" not in asked:
            raise Problem(422, f"'by' is missing: '{field}' needs it", field="by")
    begin, end = [millis_of(asked[field]) if field in asked else None for field in ("from", "to")]
    return Span(asked["by"], begin, end) if "by" in asked else None


def _check_readable(standing: JobState) -> None:
    if standing.job.kind != EXPORT or standing.state != DONE:
        raise Problem(
            409, f"the job is of kind '{standing.job.kind}' and {standing.state}: only a finished export can be read"
        )


def _id_of(segment: str) -> str:
    id_ = unescape(segment, "id")
    if flaw := flaw_of_job(id_):
        raise Problem(422, f"the job's id {flaw}", field="id")
    return id_


def _known(standing: JobState | None, id_: str) -> JobState:
    if standing is None:
        raise Problem(404, f"there is no job {id_!r}; jobs are forgotten some weeks after they ended")
    return standing

"""Jobs: a job visits all counters under a prefix, and flushers do the work."""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from ingest.access.callers import Caller, note
from ingest.api import fields
from ingest.api.fields import (
    Body,
    By,
    Count,
    Delta,
    Flaw,
    Form,
    Instant,
    JobId,
    Json,
    PageToken,
    Prefix,
    ShardNumber,
    When,
)
from ingest.http.problems import Problem
from ingest.http.requests import Call, File, Reply, page_token, unescape
from ingest.parsing.parse import BodyError, must_be, whole_from
from shared.config.lists import MOST_DAYS
from shared.config.settings import flaw_of_shards
from shared.counters.jobs import JobResults, JobStarter, NoResultError
from shared.counters.series import SpanError
from shared.http.answers import SECURE
from shared.model import jobs
from shared.model.buckets import LENGTHS, millis_of
from shared.model.errors import NotAloneError
from shared.model.jobs import ADD, COMPACT, EXACT, EXPIRE, EXPORT, KINDS, NUMBERS, JobState, Span, flaw_of_job
from shared.ports.store import Jobs as JobStore
from shared.runtime.ids import mint, of_key

MOST_JOBS_LISTED: Final = 100


def _flaw_of_instant(value: object) -> str | None:
    try:
        millis_of(value if type(value) is str else "")
    except ValueError as error:
        return str(error)
    return None


_KIND: Final = must_be(" or ".join(map(repr, KINDS)), KINDS.__contains__)
_BY: Final = must_be(" or ".join(map(repr, LENGTHS)), [*LENGTHS].__contains__)
Days = Annotated[int, Flaw(whole_from(1, MOST_DAYS)), Meta(ge=1, le=MOST_DAYS)]


class NewJob(Body):
    kind: Annotated[str, Flaw(_KIND)]
    prefix: Prefix
    delta: Delta | UnsetType = UNSET
    shards: ShardNumber | UnsetType = UNSET
    days: Days | UnsetType = UNSET
    """Only counters that were not changed for this many days are deleted."""
    by: Annotated[By, Flaw(_BY)] | UnsetType = UNSET
    """Each line has the counts of periods of this length, in UTC."""
    begin: Annotated[When, Flaw(_flaw_of_instant)] | UnsetType = field(name="from", default=UNSET)
    """The start of the range. Without it, the range begins as early as possible."""
    end: Annotated[When, Flaw(_flaw_of_instant)] | UnsetType = field(name="to", default=UNSET)
    """Where the range ends. Without it: with the period in which the job starts."""
    id: Annotated[JobId | None, Flaw(flaw_of_job)] | UnsetType = UNSET
    """The id of the job. If it is missing, the service makes one."""

    like = '{"kind": …, "prefix": …}'
    forms = (
        Form({"kind": ADD}, ("kind", "prefix", "delta"), ("id",), {"kind": ADD, "prefix": "account:", "delta": 10}),
        Form({"kind": COMPACT}, ("kind", "prefix", "shards"), ("id",)),
        Form({"kind": EXPIRE}, ("kind", "prefix", "days"), ("id",)),
        *(Form({"kind": kind}, ("kind", "prefix"), ("id",)) for kind in EXACT if kind not in NUMBERS),
        Form(
            {"kind": EXPORT},
            ("kind", "prefix", "by"),
            ("from", "to", "id"),
            {"kind": EXPORT, "prefix": "page:", "by": "hour"},
        ),
    )

    def number(self) -> int:
        """What the job adds, for example; 0 for kinds without a number, see `NUMBERS`."""
        for kind, name in NUMBERS.items():
            there = getattr(self, name) is not UNSET
            if self.kind == kind and not there:
                raise Problem(422, f"'{name}' is missing: jobs of kind '{kind}' need it", field=name)
            if self.kind != kind and there:
                raise Problem(422, f"'{name}' belongs to jobs of kind '{kind}': leave it out", field=name)
        return getattr(self, NUMBERS[self.kind]) if self.kind in NUMBERS else 0

    def span(self) -> Span | None:
        for name, value in (("by", self.by), ("from", self.begin), ("to", self.end)):
            if value is not UNSET and self.kind != EXPORT:
                raise Problem(422, f"'{name}' belongs to jobs of kind '{EXPORT}': leave it out", field=name)
            if value is not UNSET and self.by is UNSET:
                raise Problem(422, f"'by' is missing: '{name}' needs it", field="by")
        begin, end = [None if text is UNSET else millis_of(text) for text in (self.begin, self.end)]
        return None if self.by is UNSET else Span(self.by, begin, end)


class StartAsks(Struct):
    key: fields.Once = field(name=fields.ONCE, default=None)
    """Used as the id if the body has none."""


class Example(Json):
    counter: str
    reason: str


class Job(Json):
    """The job, with its results so far."""

    id: JobId
    kind: Annotated[str, Meta(extra_json_schema={"enum": [*KINDS]})]
    prefix: Prefix
    state: Literal["running", "done", "failed"]
    visited: Count
    """Counters that were visited."""
    changed: Count
    failed: Count
    """Counters that the store refused to change."""
    examples: list[Example]
    """Some of the counters that failed."""
    tasks: Count
    """Pages that were visited."""
    open: Count
    """Pages that are known and not visited yet."""
    depth: Count
    """The most pages that had to be visited one after another."""
    share: Annotated[float, Meta(ge=0, le=1)]
    """Roughly how much of the job is done."""
    started: Instant
    finished: Instant | None
    reason: str | None
    """Why the job failed."""
    sees_pending: bool
    """Whether it visits counters whose increments are all still pending, even if another process accepted them."""
    delta: Delta | UnsetType = UNSET
    shards: ShardNumber | UnsetType = UNSET
    days: Days | UnsetType = UNSET
    by: By | UnsetType = UNSET
    """For an export with counts by time: the length of the periods."""
    begin: Instant | UnsetType | None = field(name="from", default=UNSET)
    """Where its range begins, if the request said so."""
    end: Instant | UnsetType | None = field(name="to", default=UNSET)
    """Where its range ends, if the request said so."""


class Jobs(Json):
    """The jobs of this owner, as far as the key may use their counters."""

    jobs: list[Job]
    """The jobs that began last come first."""


class ExportAsks(Struct):
    page_token: PageToken = ""
    """The `Next-Page-Token` of the previous answer."""


class JobRoutes:
    """Starts, shows and stops jobs. Starting a job again under its id answers with its current state."""

    def __init__(self, jobs: JobStore, results: JobResults, starter: JobStarter, max_shards: int) -> None:
        self._jobs = jobs
        self._results = results
        self._starter = starter
        self._max_shards = max_shards

    async def start_job(self, call: Call, asks: StartAsks, body: NewJob) -> Reply:
        """Start a job, which changes or exports each counter under a prefix once"""
        if body.shards is not UNSET and (flaw := flaw_of_shards(body.shards, self._max_shards)):
            raise BodyError(422, f"'shards' {flaw}", "shards")
        id_ = body.id or (of_key(asks.key) if asks.key else mint())
        kind, prefix, number, span = body.kind, body.prefix, body.number(), body.span()
        caller = call.caller
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
        return Reply(self._said(standing, id_), 202 if new else 200, {"Location": f"/v1/jobs/{id_}"})

    async def list_jobs(self, call: Call) -> Annotated[Reply, Jobs]:
        """List the jobs that are remembered, at most {MOST_JOBS_LISTED}"""
        caller = call.caller
        found = await self._jobs.latest(caller.owner, MOST_JOBS_LISTED)
        may_see = [one for one in found if caller.has_all(one.job.prefix)]
        return Reply({"jobs": [self._said(one, one.job.id.rpartition("/")[2]) for one in may_see]})

    async def get_job(self, call: Call, segment: str) -> Annotated[Reply, Job]:
        """Show the state of a job"""
        id_ = _id_of(segment)
        return Reply(self._said(await self._known(call.caller, id_), id_))

    async def get_export(self, call: Call, segment: str, asks: ExportAsks) -> File:
        """Read what an export has written, or what each counter had before a job changed it, in the order of the UTF-8
        bytes of the names
        """
        standing = await self._known(call.caller, _id_of(segment))
        try:
            lines, more = await self._results.page(standing.job.id, asks.page_token)
        except NoResultError as error:
            raise Problem(409, str(error)) from None
        headers = {"Content-Type": "application/x-ndjson", **SECURE}
        return File(lines, headers | ({"Next-Page-Token": page_token(more)} if more else {}))

    async def stop_job(self, call: Call, segment: str) -> Reply:
        """Stop a job. What it has done is kept, but the result of an export is deleted"""
        id_ = _id_of(segment)
        await self._known(call.caller, id_)
        note(call.caller, f"stop the job {id_}")
        return Reply(self._said(_found(await self._starter.stop(call.caller.job(id_)), id_), id_))

    async def _known(self, caller: Caller, id_: str) -> JobState:
        """The job with this id. Raises a 404 or a 403 if there is none, or it is not the caller's."""
        standing = _found(await self._jobs.get(caller.job(id_)), id_)
        caller.check_prefix(standing.job.prefix)
        return standing

    def _said(self, standing: JobState, id_: str) -> dict[str, Any]:
        """`id_` is the job's id as its owner knows it."""
        return jobs.said(standing, sees_pending=self._starter.sees_pending) | {"id": id_}


def _id_of(segment: str) -> str:
    id_ = unescape(segment, "id")
    if flaw := flaw_of_job(id_):
        raise Problem(422, f"the job's id {flaw}", field="id")
    return id_


def _found(standing: JobState | None, id_: str) -> JobState:
    if standing is None:
        raise Problem(404, f"there is no job {id_!r}; jobs are forgotten some weeks after they end")
    return standing

"""The command map: changes or exports each counter under a prefix, and reports what the job did."""

import argparse
import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

from countersink import JobStatus, UnavailableError
from countersink.answers import RequestError
from countersink_server.cli.arguments import Commands, add_prefix, command, days, instant, whole
from countersink_server.cli.counters import asking
from countersink_server.cli.output import STANDARD, Bar, check, json_of, lasting, note, tell, written_to
from countersink_server.cli.setup import connected
from countersink_server.cli.target import BROKER, STORE, URL_VARIABLE, add_either, add_patience, settings_of
from flusher.service import make_runner
from shared.config.settings import MOST_SHARDS, flaw_of_shards
from shared.counters.jobs import JobResults
from shared.counters.series import SpanError
from shared.model import buckets
from shared.model.buckets import LENGTHS
from shared.model.errors import CountersinkError, TransientError, amount
from shared.model.jobs import (
    ADD,
    COMPACT,
    DELETE,
    DONE,
    EXPIRE,
    EXPORT,
    FAILED,
    NUMBERS,
    RESET,
    RUNNING,
    TELL_BEFORE,
    Span,
    flaw_of_job,
    flaw_of_prefix,
    said,
)
from shared.model.words import MAX_DELTA
from shared.runtime.ids import mint
from shared.runtime.retry import Stop
from shared.wiring.process import starter_of, tasks_of_process

# How the command map reports a job that has ended.


UNSEEN: Final = "Counters with nothing applied yet were left out: only a COUNTERSINK_OVERLAY in Redis knows them"


GONE: Final = (
    "If this job was interrupted, the counters that it had deleted until then may be missing in these numbers: they are"
    " gone, so nobody can count them again. Its result has all of them (--export FILE)"
)


def report(job: JobStatus, *, as_json: bool, resumed: bool = False) -> None:
    """`resumed`: it may have been started before."""
    if as_json:
        tell(json_of(_plain(job)))
    else:
        took = (job.finished - job.started).total_seconds() if job.finished else 0.0
        tell(
            f"job {job.id} {job.state}: counters visited {job.visited:,}, changed {job.changed:,},"
            f" failed {job.failed:,}; pages {job.tasks:,}, rounds {job.depth}, {lasting(took)}"
        )
    if not job.sees_pending and job.state == DONE:
        note(UNSEEN)
    if job.kind in {DELETE, EXPIRE} and resumed:
        note(GONE)
    if job.state == FAILED:
        raise CountersinkError(f"job {job.id} failed: {job.reason}")
    if job.failed:
        examples = "; ".join(f"{counter}: {reason}" for counter, reason in job.examples)
        raise CountersinkError(f"{amount(job.failed, 'counter')} could not be changed, among them {examples}")


def _plain(job: JobStatus) -> dict[str, Any]:
    """The fields as the service sends them."""
    values = {name: getattr(job, name) for name in job.__slots__}
    values |= {"from": values.pop("begin"), "to": values.pop("end")}
    for name in ("started", "finished", "from", "to"):
        if values[name] is not None:
            values[name] = buckets.written(values[name])
    if job.by is None:
        del values["from"], values["to"]
    for name in (*NUMBERS.values(), "by"):
        if values[name] is None:
            del values[name]
    values["examples"] = [{"counter": counter, "reason": reason} for counter, reason in job.examples]
    return values


FIRST_LOOK: Final = 0.1
LONGEST_LOOK: Final = 2.0
"""Seconds between two looks at the progress. They grow, since a look costs reads."""
DRAIN: Final = 5.0
"""Seconds to finish the pages in work when it is interrupted. Unfinished pages are repeated by --job."""
MOST_TASKS: Final = 1_000


class JobSite(NamedTuple):
    """Where the job runs, and how to look at it there."""

    look: Callable[[], Awaitable[JobStatus]]
    ended: bool
    """Whether the job had ended before this command asked for it."""
    chunks: Callable[[], AsyncIterator[bytes]]
    """The result of an export that is done, or of another job that has ended."""


class JobRequest(NamedTuple):
    id: str
    kind: str
    prefix: str
    number: int | None
    """See `NUMBERS`."""
    span: Span | None = None


def add_commands(commands: Commands) -> None:
    parser = command(
        commands,
        "map",
        _map,
        more="Each counter that was counted before is changed exactly once; one that is created meanwhile may or may"
        " not be. If the command is killed, run it again with the same --job ID: it continues where it stopped. Without"
        " --job, each run is a new job, and changes the counters again. Without --url, this process does the work,"
        " with the settings that countersink --help lists.",
        json="print the result as a JSON object",
    )
    add_prefix(parser, "prefix of the names; '' means all counters", required=True)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--add", type=whole(-MAX_DELTA, MAX_DELTA), metavar="N", help="add N to each counter")
    what.add_argument("--reset", action="store_true", help="set each counter to 0")
    what.add_argument(
        "--delete", action="store_true", help="set each to 0, and remove it from lists until it is counted again"
    )
    parser.add_argument(
        "--unused-for",
        type=days,
        metavar="400d",
        help="with --delete: only counters that were not changed for this many days (d) or years (y)",
    )
    what.add_argument("--compact", type=whole(1, MOST_SHARDS), metavar="N", help="reduce each counter to N shards")
    parser.add_argument(
        "--export",
        metavar="FILE",
        help="write a line of JSON for each counter, in order; - is standard output. With --reset or --delete:"
        " what the counter had before",
    )
    parser.add_argument(
        "--by", choices=[*LENGTHS], help="with --export: also write the counts of each minute, hour or day (UTC)"
    )
    parser.add_argument(
        "--from",
        dest="begin",
        type=instant,
        metavar="WHEN",
        help="with --by: start of the first period, such as 2026-01-31T12:00:00Z [as early as possible]",
    )
    parser.add_argument(
        "--to",
        dest="end",
        type=instant,
        metavar="WHEN",
        help="with --by: end of the last period [with the current one]",
    )
    parser.add_argument(
        "--job", metavar="ID", help="id of the job, which happens once however often you run it [a new id]"
    )
    add_either(parser, "let the service at URL do the work; map does not use COUNTERSINK_URL by itself")
    parser.add_argument(
        "--concurrency",
        type=whole(1, MOST_TASKS),
        metavar="N",
        help="without --url: pages processed at the same time [COUNTERSINK_JOB_TASKS]",
    )
    add_patience(parser, "with --url: ")


def _map(options: argparse.Namespace) -> None:
    kind, number = _kind(options)
    if options.by is not None and kind != EXPORT:
        options.refuse("--by is for --export")
    if options.by is None and (options.begin, options.end) != (None, None):
        options.refuse("--from and --to are for --by")
    span = None if options.by is None else Span(options.by, options.begin, options.end)
    wish = JobRequest(options.job or mint(), kind, options.prefix, number, span)
    flaws = {
        "--prefix": flaw_of_prefix(wish.prefix),
        "--job": flaw_of_job(wish.id) if options.job is not None else None,
    }
    for name, flaw in flaws.items():
        if flaw is not None:
            options.refuse(f"argument {name}: {flaw}")
    named = options.url is not None or options.data is not None or BROKER in os.environ or STORE in os.environ
    if os.environ.get(URL_VARIABLE) and not named:
        options.refuse(
            f'{URL_VARIABLE} is set, but map works on the data itself: give --url "${URL_VARIABLE}" or --data DIR'
        )
    if options.concurrency is not None and options.url:
        options.refuse(
            "--concurrency is for this process; with --url the flushers do the work: set COUNTERSINK_JOB_TASKS there"
        )
    if options.json and options.export == STANDARD:
        options.refuse("--json and --export - both write to standard output: name a file")
    bar = Bar()
    where = _by_service(wish, options, bar) if options.url else _by_itself(wish, options)
    try:
        job = asyncio.run(_follow(wish, where, options.export, bar))
    except KeyboardInterrupt:
        more = "continues; to look at it again" if options.url else "stopped; to continue"
        stop = f"; to stop it, send DELETE {options.url}/v1/jobs/{wish.id}" if options.url else ""
        note(f"job {wish.id} {more}, repeat the command with --job {wish.id}{stop}")
        raise
    if options.export != STANDARD or job.state == FAILED:
        report(job, as_json=options.json, resumed=options.job is not None)


def _kind(options: argparse.Namespace) -> tuple[str, int | None]:
    unused = options.unused_for
    if unused is not None and not options.delete:
        options.refuse("--unused-for is for --delete")
    numbers = {ADD: options.add, COMPACT: options.compact, EXPIRE: unused}
    flags = {RESET: options.reset, DELETE: options.delete and unused is None}
    asked = flags | {kind: number is not None for kind, number in numbers.items()}
    kind = next((kind for kind in asked if asked[kind]), EXPORT)
    if kind == EXPORT and options.export is None:
        options.refuse("one of --add, --reset, --delete, --compact and --export is required")
    if kind not in {EXPORT, *TELL_BEFORE} and options.export is not None:
        options.refuse("--export can be combined only with --reset or --delete")
    return kind, numbers.get(kind)


async def _follow(
    wish: JobRequest, where: "contextlib.AbstractAsyncContextManager[JobSite]", file: str | None, bar: Bar
) -> JobStatus:
    try:
        if file is not None:
            check(file)
        async with where as place:
            job = await place.look()
            if job.state == RUNNING:
                note(f"job {wish.id}")
            elif place.ended:
                when = f" at {buckets.written(job.finished)}" if job.finished else ""
                note(f"job {wish.id} had ended before{when}: this is its result, and nothing is done again")
            pause = FIRST_LOOK
            try:
                while job.state == RUNNING:
                    bar.show(job, time.monotonic())
                    await asyncio.sleep(pause)
                    pause = min(1.2 * pause, LONGEST_LOOK)
                    job = await place.look()
                bar.end()
                if file is not None and (job.state == DONE or job.kind in TELL_BEFORE):
                    await written_to(file, place.chunks())
            except (CountersinkError, RequestError) as error:
                raise _interrupted(error, wish) from error
    finally:
        bar.end()
    return job


def _interrupted(error: Exception, wish: JobRequest) -> CountersinkError:
    return CountersinkError(f"{error} (to continue, repeat the command with --job {wish.id})")


@asynccontextmanager
async def _by_service(wish: JobRequest, options: argparse.Namespace, bar: Bar) -> AsyncIterator[JobSite]:
    async with asking(options, options.patience, bar.note) as client:
        try:
            number = {NUMBERS[wish.kind]: wish.number} if wish.kind in NUMBERS else {}
            by, *ends = wish.span or (None, None, None)
            begin, end = [None if when is None else buckets.datetime_of(when) for when in ends]
            first = [await client.start_job(wish.kind, wish.prefix, **number, by=by, begin=begin, end=end, id=wish.id)]
            ended = first[0].state != RUNNING  # a new job runs
        except UnavailableError as error:
            raise _interrupted(error, wish) from error

        async def look() -> JobStatus:
            return first.pop() if first else await client.job(wish.id)

        yield JobSite(look, ended, lambda: client.export(wish.id))


@asynccontextmanager
async def _by_itself(wish: JobRequest, options: argparse.Namespace) -> AsyncIterator[JobSite]:
    """Run the job here, with the code of flushers and a queue of its own. Flushers may work on it too: nothing is
    done twice.
    """
    settings = settings_of(options)
    async with connected(settings) as opened:
        if wish.kind == COMPACT and (flaw := flaw_of_shards(wish.number, settings.max_shards)):
            raise CountersinkError(f"--compact {flaw}")
        parts = replace(opened, tasks=tasks_of_process())
        await parts.open()
        starter = starter_of(parts, settings)
        asked = (wish.kind, wish.prefix, wish.number or 0)
        try:
            standing, _ = await starter.start(*asked, span=wish.span, id_=wish.id)
        except SpanError as error:
            if error.field != "by":
                raise
            raise CountersinkError(
                f"{error}. This command goes by its own environment: set COUNTERSINK_WINDOWS as for the service, or use"
                " --url"
            ) from None
        if not standing.job.asks(*asked, wish.span):
            raise CountersinkError(f"{standing.job.taken()}: choose another id")
        runner = make_runner(parts, settings, at_once=options.concurrency)
        stop, ended = Stop(), standing.state != RUNNING

        async def look() -> JobStatus:
            nonlocal standing
            if running.done():
                running.result()
            await parts.check_files()
            with contextlib.suppress(TransientError):  # tasks are retried meanwhile as well
                found = await parts.jobs.get(wish.id)
                if found is None:
                    raise CountersinkError("the job has expired")
                standing = found
            return JobStatus.of(said(standing, sees_pending=starter.sees_pending))

        running = asyncio.create_task(runner.run(stop, DRAIN), name="jobs")
        try:
            yield JobSite(look, ended, lambda: JobResults(parts.jobs, parts.store).pages(wish.id))
        finally:
            stop.set()
            await running

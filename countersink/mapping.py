"""The command that does something to each counter under a prefix: map. By a service, or by this process alone.

What it needs is imported by it alone, as with the other commands.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countersink.arguments import seconds, whole
from countersink.bar import Bar, lasting
from countersink.exports import written
from countersink.output import tell
from countersink.setup import read_settings
from countersink.shell import PATIENCE
from shared.errors import CountersinkError, SettingsError, TransientError
from shared.ids import mint
from shared.jobs import ADD, DELETE, DONE, EXPORT, FAILED, RESET, RUNNING, flaw_of_job, flaw_of_prefix, said
from shared.words import flaw_of_delta

if TYPE_CHECKING:
    from countersink.answers import Job

LOOK: Final = 0.2
"""Seconds between two looks at how far it is."""
DRAIN: Final = 5.0
"""Seconds for the pages in work, when it is interrupted. What is cut off is done again by who goes on."""
MOST_AT_ONCE: Final = 1_000

CHUNKS: Final = 20
STANDARD: Final = "-"
"""Output."""


class Place(NamedTuple):
    """Where it is done, and how to look at it there."""

    look: Callable[[], Awaitable["Job"]]
    chunks: Callable[[], AsyncIterator[bytes]]
    """Of an export that is done."""


class Wish(NamedTuple):
    """What was said on the command line."""

    id: str
    kind: str
    prefix: str
    delta: int | None


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    help_ = "do something to each counter under a prefix, once"
    parser = commands.add_parser(
        "map",
        help=help_,
        allow_abbrev=False,
        description=f"{help_[0].upper()}{help_[1:]}: each that is in the store when it begins; one that is made"
        " meanwhile may get it or not. Killed at any time and run again with --job, it goes on; what is done is not"
        " done twice. Without --url this process does it, by settings, see countersink --help.",
    )
    parser.add_argument("--prefix", required=True, metavar="P", help="of the counters' names; '' is that of all")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--add", type=int, metavar="N", help="add so much to each")
    what.add_argument("--reset", action="store_true", help="give each the value 0")
    what.add_argument("--delete", action="store_true", help="reset each, and list it no more until it is counted again")
    what.add_argument("--export", metavar="FILE", help="write a line of JSON for each, in order; - is standard output")
    parser.add_argument("--job", metavar="ID", help="happens once however often it is run under this id [a new one]")
    parser.add_argument("--url", help="have the service there do it")
    parser.add_argument(
        "--concurrency",
        type=whole(1, MOST_AT_ONCE),
        metavar="N",
        help="pages at once, without --url [COUNTERSINK_JOB_TASKS]",
    )
    parser.add_argument(
        "--patience",
        type=seconds,
        default=PATIENCE,
        metavar="S",
        help=f"with --url: seconds to try again while there is no answer or it is 'later' [{PATIENCE:g}]",
    )
    parser.add_argument("--json", action="store_true", help="say what it came to as a JSON object")
    parser.set_defaults(run=_map, refuse=parser.error)


def _map(options: argparse.Namespace) -> None:
    kinds = {ADD: options.add is not None, RESET: options.reset, DELETE: options.delete, EXPORT: options.export}
    (kind,) = [kind for kind, asked in kinds.items() if asked]
    wish = Wish(options.job or mint(), kind, options.prefix, options.add)
    flaws = {
        "--prefix": flaw_of_prefix(wish.prefix),
        "--add": None if wish.delta is None else flaw_of_delta(wish.delta),
        "--job": flaw_of_job(wish.id) if options.job is not None else None,
    }
    for name, flaw in flaws.items():
        if flaw is not None:
            options.refuse(f"argument {name}: {flaw}")
    if options.concurrency is not None and options.url:
        options.refuse("--concurrency is of this process; with --url flushers do it (COUNTERSINK_JOB_TASKS)")
    if options.json and options.export == STANDARD:
        options.refuse("--json and --export - both go to standard output: name a file")
    where = _by_service(wish, options) if options.url else _by_itself(wish, options.concurrency)
    try:
        job = asyncio.run(_follow(wish, where, options.export))
    except KeyboardInterrupt:
        more = "goes on; to look at it again" if options.url else "stopped; to go on"
        _note(f"job {wish.id} {more}, run the same with --job {wish.id}")
        raise
    if options.export != STANDARD or job.state == FAILED:
        _report(job, as_json=options.json)


async def _follow(wish: Wish, where: "contextlib.AbstractAsyncContextManager[Place]", file: str | None) -> "Job":
    bar = Bar()
    try:
        async with where as place:
            job = await place.look()
            if job.state == RUNNING:
                _note(f"job {wish.id}")
            while job.state == RUNNING:
                bar.show(job, time.monotonic())
                await asyncio.sleep(LOOK)
                try:
                    job = await place.look()
                except CountersinkError as error:
                    raise _interrupted(error, wish) from error
            bar.end()
            if file is not None and job.state == DONE:
                await written(file, place.chunks())
    finally:
        bar.end()
    return job


def _interrupted(error: CountersinkError, wish: Wish) -> CountersinkError:
    return CountersinkError(f"{error} To go on, run the same with --job {wish.id}")


@asynccontextmanager
async def _by_service(wish: Wish, options: argparse.Namespace) -> AsyncIterator[Place]:
    from countersink.answers import UnavailableError  # noqa: PLC0415 (as below)
    from countersink.client import Client  # noqa: PLC0415 (who asks for help should not wait for it)

    try:
        client = Client(options.url, patience=options.patience)
    except SettingsError as error:
        options.refuse(f"argument --url: {error}")
    async with client:
        try:
            first = [await client.start_job(wish.kind, wish.prefix, wish.delta, id=wish.id)]
        except UnavailableError as error:
            raise _interrupted(error, wish) from error

        async def look() -> "Job":
            return first.pop() if first else await client.job(wish.id)

        yield Place(look, lambda: client.export(wish.id))


@asynccontextmanager
async def _by_itself(wish: Wish, at_once: int | None) -> AsyncIterator[Place]:
    """The same code as in flushers, on a queue of its own. Others may do the same job: nothing is done twice."""
    from countersink.answers import Job  # noqa: PLC0415 (as above)
    from flusher.service import make_runner, make_worker  # noqa: PLC0415 (as above)
    from shared.files import missing_file  # noqa: PLC0415 (as above)
    from shared.receipts import lifetime  # noqa: PLC0415 (as above)
    from shared.starting import Starting  # noqa: PLC0415 (as above)
    from shared.supervise import Stop  # noqa: PLC0415 (as above)
    from shared.wiring import connect, tasks_of_process  # noqa: PLC0415 (as above)

    settings = read_settings()
    if (file := missing_file(settings)) is not None:
        raise CountersinkError(f"{file}: is not there, so there are no counters: do the settings name it right?")
    parts = connect(settings)
    try:
        await parts.open()
        tasks = tasks_of_process(parts.clock, settings.lease)
        starting = Starting(
            parts.jobs, tasks, parts.overlay, parts.clock, lifetime(settings.retention * 1000, of_client=True)
        )
        standing, _ = await starting.start(wish.kind, wish.prefix, wish.delta or 0, id_=wish.id)
        if not standing.job.asks(wish.kind, wish.prefix, wish.delta or 0):
            raise CountersinkError(f"there is another job called {wish.id!r}: choose another id")
        worker = make_worker(tasks, parts.jobs, parts.store, parts.overlay, clock=parts.clock, settings=settings)
        runner = make_runner(tasks, worker, settings, at_once=at_once)
        stop = Stop()

        async def look() -> Job:
            nonlocal standing
            if running.done():
                running.result()
            with contextlib.suppress(TransientError):  # tasks are tried again then, too
                found = await parts.jobs.get(wish.id)
                if found is None:
                    raise CountersinkError("the job was forgotten meanwhile")
                standing = found
            return Job.of(said(standing))

        async def chunks() -> AsyncIterator[bytes]:
            after = ""
            while some := await parts.jobs.chunks(wish.id, after, CHUNKS):
                yield b"".join(chunk for _, chunk in some)
                after = some[-1][0]
                if not after:  # the first of them is all
                    return

        running = asyncio.create_task(runner.run(stop, DRAIN), name="jobs")
        try:
            yield Place(look, chunks)
        finally:
            stop.set()
            await running
    finally:
        await parts.close()


def _report(job: "Job", *, as_json: bool) -> None:
    if as_json:
        tell(json.dumps(_plain(job), ensure_ascii=False))
    else:
        took = (job.finished - job.started).total_seconds() if job.finished else 0.0
        tell(
            f"job {job.id} {job.state}: {job.visited:,} counters visited, {job.changed:,} changed,"
            f" {job.failed:,} failed; {job.tasks:,} pages in {job.depth} rounds, {lasting(took)}"
        )
    if job.state == FAILED:
        raise CountersinkError(f"job {job.id} failed: {job.reason}")
    if job.failed:
        examples = "; ".join(f"{counter}: {reason}" for counter, reason in job.examples)
        raise CountersinkError(f"{job.failed} counters could not be changed, among them {examples}")


def _plain(job: "Job") -> dict[str, Any]:
    """As the service says it."""
    values = {name: getattr(job, name) for name in job.__slots__}
    for name in ("started", "finished"):
        if values[name] is not None:
            values[name] = values[name].isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if job.delta is None:
        del values["delta"]
    values["examples"] = [{"counter": counter, "reason": reason} for counter, reason in job.examples]
    return values


def _note(line: str) -> None:
    """Beside what was asked for."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)  # noqa: T201 (as above)

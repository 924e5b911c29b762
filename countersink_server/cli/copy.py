"""The command copy: takes one store along to another place."""

import argparse
import os
from contextlib import AsyncExitStack, aclosing
from typing import Final

from countersink_server.cli.arguments import LINES, Commands, add_prefix, command
from countersink_server.cli.output import Bar, check, flush, json_of, note, tell, written_to
from countersink_server.cli.target import add_neither, cause_of, line_of
from countersink_server.move.copier import WHAT, Copier, CopyReport
from countersink_server.move.importer import ImportOptions
from countersink_server.serve.logs import set_up
from shared.config import urls
from shared.config.settings import Settings, receipts_live
from shared.model.errors import CountersinkError, SettingsError, amount
from shared.model.fleet import begun
from shared.model.moving import Origin, name_of_copy
from shared.wiring.moving import End, end_of, file_of, lines_of, origin_in

FROM: Final = "--from"
TO: Final = "--to"
MOST_DIFFERENCES: Final = 100
"""Differences that are shown."""
_REMEDY: Final = (
    "What the target holds besides is left alone. To have what the origin has, copy to a new place (or, if nothing was"
    " copied to the counter and it has no counts by time, delete it in the target, and copy again). To add both, use"
    " --merge"
)
_AGAIN: Final = "run it again: what was copied is not copied twice"


def add_commands(commands: Commands) -> None:
    parser = command(
        commands,
        "copy",
        _copy,
        more="You can kill it, repeat it, and run it while the origin counts. It writes nothing to the origin. At the"
        " end it compares everything, and exits with 1 if something differs.",
        json=LINES,
    )
    for name, place in ((FROM, "origin"), (TO, "target")):
        parser.add_argument(
            name,
            dest=place,
            required=True,
            metavar="URL",
            help="sqlite:///FILE, datastore://PROJECT[/DATABASE][?namespace=NS] or a file whose name ends in .ndjson",
        )
    add_prefix(parser, "only counters whose names start with P", default="")
    parser.add_argument(
        "--job", metavar="ID", help="the name under which the target remembers what was copied [that of the origin]"
    )
    parser.add_argument(
        "--merge",
        action="store_true",
        help="also copy to counters that hold something else, and compare only what was copied",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be copied, and write nothing")
    add_neither(parser, "this command opens the data itself: use --from and --to")
    parser.set_defaults(data=None)


async def _copy(options: argparse.Namespace) -> None:
    settings = Settings.read(os.environ)
    set_up(settings)
    read, write = file_of(options.origin), file_of(options.target)
    async with AsyncExitStack() as stack:
        if read is not None:
            origin = origin_in(read)
        else:
            place = end_of(settings, FROM, options.origin, makes=False, still=True)
            origin = (await stack.enter_async_context(place)).origin
        if write is not None:
            await _to_file(origin, str(write), options)
            return
        place = end_of(settings, TO, options.target, makes=True, still=options.dry_run)
        end = await stack.enter_async_context(place)
        if end.origin.name == origin.name and read is None:
            raise SettingsError(f"{FROM} and {TO} are the same store")
        origin.name = name_of_copy(options.job or origin.name)
        await _to_store(origin, end, settings, options)


async def _to_file(origin: Origin, file: str, options: argparse.Namespace) -> None:
    if options.dry_run:
        options.refuse("argument --dry-run: a file is always written again, so use it with a store")
    check(file)
    async with aclosing(lines_of(origin, options.prefix)) as lines:
        await written_to(file, lines)
    waiting = await origin.waiting()
    _warn(waiting)
    if waiting:
        note(f"countersink: {file} lacks {amount(waiting, 'increment')}, not applied yet")


async def _to_store(origin: Origin, end: End, settings: Settings, options: argparse.Namespace) -> None:
    live = receipts_live(settings, of_client=False)
    chosen = ImportOptions(live, settings.shards, dry=options.dry_run, shrink=True)
    bar = Bar()

    def show(step: str, number: int) -> None:
        bar.show_at_times(f"{step}: {number}")

    copier = Copier(origin, end, chosen, merge=options.merge, progress=show)
    if end.book is not None and not options.dry_run:
        await end.book.change(begun)
    try:
        await copier.copy(options.prefix)
        waiting = await origin.waiting()
        if not options.dry_run:
            await copier.compare(options.prefix)
            if origin.went_on():
                copier.report.differences.append(("", "the origin was written to meanwhile"))
    except Exception as error:
        if isinstance(cause := cause_of(error), SettingsError):  # it would fail again
            raise cause from error
        raise CountersinkError(f"{line_of(error)} ({_AGAIN})") from error
    finally:
        bar.end()
    _tell(copier.report, waiting, options)


def _tell(report: CopyReport, waiting: int | None, options: argparse.Namespace) -> None:
    for name, what in report.differences[:MOST_DIFFERENCES]:
        row = {"name": name, "differs": what}
        tell(json_of(row) if options.json else f"DIFFERS: {name + ': ' if name else ''}{what}")
    if options.json:
        tell(
            json_of(
                {"origin": report.origin, "copied": report.copied, "waiting": waiting}
                | {"differences": len(report.differences), "dry_run": options.dry_run}
            )
        )
    else:
        is_file = urls.scheme_of(options.target) == "sqlite"
        tell(f"target: {urls.sqlite_file(TO, options.target).absolute() if is_file else options.target}")
        would = "would be copied" if options.dry_run else "copied now"
        for what, called in WHAT.items():
            tell(f"{called}: {report.origin[what]}, of which {report.copied[what]} {would}")
        _warn(waiting)
    flush()
    if waiting:
        unapplied = (
            f"not applied in the origin: {amount(waiting, 'increment')}. Stop what counts there, let a flusher apply"
            " them, and copy again"
        )
        if not (report.differences or options.dry_run):
            raise CountersinkError(unapplied)
        note(f"countersink: {unapplied}")
    if report.differences:
        found = f"{amount(len(report.differences), 'difference')}, see above"
        raise CountersinkError(f"{found}. {_REMEDY}" if report.is_foreign else found)


def _warn(waiting: int | None) -> None:
    if waiting is None:
        note("countersink: this command can't see what waits in Pub/Sub: drain the subscription before the last copy")

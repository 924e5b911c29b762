"""The commands that make, check and copy the set-up: provision, doctor, sweep, backup.

What they need is imported by them alone, as with those that run processes.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from countersink_server.cli.arguments import LINES, Commands, command
from countersink_server.cli.output import flush, json_of, tell
from countersink_server.cli.target import add_only_data, settings_of, with_data
from shared.config.findings import FAIL, OK, Finding
from shared.config.settings import Settings
from shared.model.errors import CountersinkError, TransientError, amount
from shared.runtime.retry import Backoff, insist, tries
from shared.wiring import doctor
from shared.wiring.files import all_files, backup, data_file, until_closed
from shared.wiring.process import Parts, check_receiver, connect

AT_ONCE: Final = 1_000
"""Receipts that one step of a sweep deletes at most."""
ALL: Final = object()
TRIES: Final = 5
"""Seconds that one step may be retried: flushers sweep at the same time."""


def add_commands(commands: Commands) -> None:
    add(commands, "provision", _provision)
    doctor = add(commands, "doctor", _doctor)
    doctor.add_argument(
        "--trust-overlay",
        nargs="?",
        const=ALL,
        metavar="PROCESS|SPOOL",
        help="declare that all increments of a lost process are applied, so that reads are exact again; then check."
        " Without a name, this means all lost processes, and is refused while messages of one that stopped are not"
        " applied",
    )
    doctor.add_argument(
        "--trust-file",
        action="store_true",
        help="declare that the SQLite files are correct as they are now, after you restored a backup or removed"
        " a file to begin again; then check. Without this, Countersink does not start if a file is missing, older or"
        " another one",
    )
    add(
        commands,
        "sweep",
        _sweep,
        more="This uses the store's time, not this machine's clock. The time of a file passes only while a"
        " process has the file open.",
    )
    backup = add(
        commands,
        "backup",
        _backup,
        more="The copy is of one instant, and is checked. Any name will do; `countersink up --data DIR` starts on a"
        " copy that is named countersink.db in DIR.",
    )
    backup.add_argument("file", type=Path, metavar="FILE", help="where the copy goes; it must not exist")


def add(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], Awaitable[None]],
    *,
    help_: str = "",
    more: str = "",
) -> argparse.ArgumentParser:
    """Add a command that uses only the settings."""
    more = f"{more} It uses the settings that countersink --help lists.".lstrip()
    parser = command(commands, name, run, help_=help_, more=more, json=LINES)
    add_only_data(parser)
    return parser


async def _provision(options: argparse.Namespace) -> None:
    wrong = 0
    for opening in doctor.setups(settings_of(options)):
        async with opening() as setup:
            async for finding in setup.provision():
                _show(finding, options)
                wrong += finding.mark == FAIL
    if wrong:
        raise CountersinkError(f"{wrong} of these could not be created or repaired: see what their lines say to do")


async def _doctor(options: argparse.Namespace) -> None:
    settings = cache(partial(settings_of, options))  # reading them says to people what is used: once is enough
    if options.trust_overlay is not None:
        which = None if options.trust_overlay is ALL else options.trust_overlay
        for said in await doctor.trust_overlay(settings(), which):
            _tell({"trusted": said} if options.json else f"trusted: {said}")
    if options.trust_file:
        for file in all_files(settings()):
            data_file(file).trust()
    count = failed = 0
    async for finding in _findings(settings):
        _show(finding, options, f"{finding.mark:4}  {finding.part:8}  ")
        count += 1
        failed += finding.mark == FAIL
    if failed:
        raise CountersinkError(f"{failed} of {count} checks failed")


async def _findings(settings: Callable[[], Settings]) -> AsyncIterator[Finding]:
    try:
        openings = doctor.setups(settings())
        await check_receiver(settings())
    except CountersinkError as error:
        yield Finding(FAIL, "settings", str(error))
        return
    yield Finding(OK, "settings", "can be read")
    for opening in openings:
        try:
            async with opening() as setup:
                async for finding in setup.findings():
                    yield finding
        except CountersinkError as error:
            yield Finding(FAIL, "settings", str(error))


async def _sweep(options: argparse.Namespace) -> None:
    deleted = 0
    async with connected(settings_of(options)) as parts:
        try:
            now = await parts.store.now()
            while some := await _patiently(lambda: parts.store.sweep(now, AT_ONCE)):
                deleted += some
            while await _patiently(lambda: parts.jobs.sweep(now, AT_ONCE)):
                pass
        except CountersinkError as error:
            raise CountersinkError(f"after {amount(deleted, 'receipt')}: {error}") from error
    _tell({"deleted": deleted} if options.json else f"{amount(deleted, 'expired receipt')} deleted")


async def _patiently(step: Callable[[], Awaitable[int]]) -> int:
    return await insist(step, TransientError, tries(TRIES), Backoff())


async def _backup(options: argparse.Namespace) -> None:
    copied = await asyncio.to_thread(backup, settings_of(options), options.file)
    pending = amount(copied.pending, "pending message")
    said = f"{amount(copied.counters, 'counter')}, {pending}, {copied.size:,} bytes"
    _tell(
        {"file": str(options.file), **copied._asdict()}
        if options.json
        else f"{options.file}: {said}; checked and synced"
    )


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Parts]:
    """The parts that the settings name, which are closed at the end."""
    parts = connect(settings)
    async with until_closed(parts, parts.close):
        yield parts


def _show(finding: Finding, options: argparse.Namespace, before: str = "") -> None:
    if options.json:
        _tell({"part": finding.part, "mark": finding.mark.lower(), "said": with_data(finding.said, options)})
    else:
        _tell(before + with_data(finding.said, options))


def _tell(said: str | Mapping[str, Any]) -> None:
    """Print it as one line, at once: the next finding may take a while."""
    if not isinstance(said, str):
        said = json_of(said)
    tell(" ".join(said.split()) if "\n" in said else said)
    flush()

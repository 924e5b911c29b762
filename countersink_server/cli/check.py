"""The command check: counts on a running service, and says whether it keeps its promises."""

import argparse
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

from countersink import Client
from countersink.answers import RejectedError, UnavailableError
from countersink.calls import header_of_caller, path_of_counter
from countersink.transport import ONE_TRY, Request, Transport
from countersink_server.check.ledger import History, Ledger, Verdict, judged
from countersink_server.check.load import PATIENCE, Load
from countersink_server.cli.arguments import Commands, add_prefix, command, seconds_from, whole
from countersink_server.cli.output import Bar, flush, json_of, note, tell
from countersink_server.cli.output import check as check_file
from countersink_server.cli.target import (
    AGAIN,
    KEY,
    SILENCE,
    add_only_service,
    key_of_caller,
    naming_the_url,
    url_of,
    with_key,
)
from shared.model.buckets import LENGTHS
from shared.model.errors import CountersinkError

T = TypeVar("T")
SECONDS: Final = 60.0
CLIENTS: Final = 16
APPLIED_WITHIN: Final = 120.0
"""Seconds until everything is in the store, counts by time are exact, and the service can be asked again. On Datastore,
a flusher that died in a commit holds periods open for a minute.
"""
IF_WRONG: Final = 10.0
"""The same if readings were wrong, so that the verdict is known."""
EXACT: Final = "exact"
NOT_KEPT: Final = "not kept"
TOO_YOUNG: Final = "too young"
"""Counts by time are kept, but not yet for a whole period before the check."""
UNKNOWN: Final = "unknown"


def add_commands(commands: Commands) -> None:
    parser = command(
        commands,
        "check",
        _check,
        description="Let many clients count on a running service, with and without ids, retry, repeat and read; then"
        " compare. Kill what you like meanwhile. It uses counters of its own, and deletes them afterwards if the key"
        " has the scope admin. Exits with 1 if an increment is lost, counted twice, or missing in an exact reading.",
        json="print a JSON object",
    )
    add_only_service(parser, "this command asks a running service: use --url, or countersink audit for the data")
    parser.add_argument("--key", help=f"key of the service, with the scopes write and read; also {KEY}")
    parser.add_argument("--seconds", type=seconds_from(1), default=SECONDS, metavar="N", help=f"how long [{SECONDS:g}]")
    parser.add_argument(
        "--clients", type=whole(2, 1_000), default=CLIENTS, metavar="N", help=f"clients at once [{CLIENTS}]"
    )
    add_prefix(parser, "what the names of its counters begin with [check:]", default="check:")
    parser.add_argument(
        "--history", metavar="FILE", help="write each operation to this file, in the form of Jepsen's histories"
    )


def _check(options: argparse.Namespace) -> None:
    if options.history:
        check_file(options.history)
    with naming_the_url(options):
        url, key = url_of(options), options.key or key_of_caller()
        transport, client = partial(Transport, url, header_of_caller(key), None), Client(url, key, patience=ONE_TRY)
    begun = datetime.now(UTC)
    prefix = f"{options.prefix}{secrets.token_hex(4)}:"
    with ExitStack() as stack:
        stack.enter_context(client)
        file = options.history and stack.enter_context(Path(options.history).open("w", encoding="utf-8"))
        ledger = Ledger(History(file))
        load = Load(transport, ledger, prefix)
        with closing(transport()) as service:
            _ = service.attempt(Request("GET", "/version"), ONE_TRY).object  # a wrong URL is said at once
            _check_key(service, load.names[0], options)
        if not options.json:
            minutes = (PATIENCE + APPLIED_WITHIN) / 60
            note(f"{options.seconds:g} s of counting, then up to {minutes:g} minutes until everything is applied")
        try:
            _count(load, ledger, options)
            values = _settled(client, load.names, ledger)
            verdict = judged(ledger.sums, values)
            try:
                series, unknown = _series(client, values, begun), None
            except CountersinkError as error:
                series, unknown = UNKNOWN, error
            left = _delete(client, load.names, ledger)
        except KeyboardInterrupt:
            note(f"its counters may remain: {load.names[0]} to {load.names[-1]}")
            raise
    broken = verdict.lost or verdict.doubled or ledger.wrong or series not in {EXACT, NOT_KEPT, TOO_YOUNG, UNKNOWN}
    found = {
        **verdict._asdict(),
        "exact_readings": ledger.exact,
        "wrong_readings": ledger.wrong,
        "other_readings": ledger.inexact,
        "series": series,
        "requests": load.attempts,
        "without_answer": load.failures + load.abandoned,
        "abandoned": load.abandoned,
        "examples": ledger.examples,
        "remain": left or None,
        "ok": not broken and unknown is None,
    }
    if options.json:
        tell(json_of(found))
    else:
        _report(verdict, ledger, found, left)
        if broken or found["ok"]:
            tell("A PROMISE IS BROKEN" if broken else "every promise was kept")
    flush()
    if broken:
        raise CountersinkError("a promise is broken")
    if unknown is not None:
        raise unknown


def _check_key(service: Transport, name: str, options: argparse.Namespace) -> None:
    """Say at once if the key may not read or count such a counter. Adding 0 changes nothing."""
    path = path_of_counter(name)
    for request in (Request("GET", path), Request("POST", path, b'{"delta": 0}')):
        try:
            service.attempt(request, ONE_TRY)
        except UnavailableError:
            continue  # the load tries again
        except RejectedError as error:
            if error.status not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise
            said = with_key(error, "--key" if options.key else KEY)
            if name in str(error):
                said += ". If it may count under another prefix, add --prefix"
            raise CountersinkError(said) from error


def _count(load: Load, ledger: Ledger, options: argparse.Namespace) -> None:
    bar = Bar()

    def show() -> None:
        bar.write(
            f"{ledger.accepted_in_all:,} accepted, {ledger.exact:,} exact readings, {ledger.wrong} wrong,"
            f" {load.failures:,} failures"
        )

    try:
        load.run(options.seconds, options.clients, show)
    finally:
        bar.end()


def _report(verdict: Verdict, ledger: Ledger, found: Mapping[str, Any], left: str) -> None:
    abandoned = found["abandoned"]
    fate = f"{found['without_answer'] - abandoned:,} failed, {abandoned:,} abandoned on purpose"
    rows = (
        ("accepted", verdict.accepted, ""),
        ("unknown", verdict.unknown, "sent without an id or a clear answer: each may have counted"),
        ("counted", verdict.counted, ""),
        ("lost", verdict.lost, "accepted, and not counted"),
        ("doubled", verdict.doubled, "counted more often than sent"),
        ("exact reads", ledger.exact, f"{ledger.wrong:,} of them wrong"),
        ("other reads", ledger.inexact, "the service said that they may not be exact" if ledger.inexact else ""),
        ("requests", found["requests"], fate),
    )
    for name, number, meaning in rows:
        tell(f"{name:12} {number:>12,}  {meaning}".rstrip())
    tell(f"{'by time':12} {found['series']:>12}")
    for example in ledger.examples:
        tell(f"wrong: {example}")
    if left:
        tell(left)


def _settled(client: Client, names: list[str], ledger: Ledger) -> Mapping[str, int]:
    """The counters after everything that was accepted is applied. The service may be away for a while."""
    within = IF_WRONG if ledger.wrong else APPLIED_WITHIN

    def look() -> Mapping[str, int] | None:
        found = client.get_many(names, max_age=0)
        values = {one.name: one.value for one in found}
        # If readings are not exact, other processes may hold what is missing.
        early = any(one.pending for one in found) or (
            not all(one.exact for one in found) and judged(ledger.sums, values).lost
        )
        return None if early else values

    try:
        return _until(look, "not everything was applied", within)
    except CountersinkError as error:
        raise CountersinkError(
            f"{error}. {ledger.accepted_in_all:,} were accepted, and {ledger.wrong:,} exact readings were wrong."
            f" Its counters remain: {names[0]} to {names[-1]}"
        ) from error


def _series(client: Client, values: Mapping[str, int], begun: datetime) -> str:
    """Whether the counts by time add up to the totals, if the service keeps some."""
    found = NOT_KEPT
    for by, length in LENGTHS.items():
        period = timedelta(milliseconds=length)
        try:
            kept = _until(partial(client.series, next(iter(values)), by), "the counts by time could not be read")
            if kept.begin > begun - period:
                found = TOO_YOUNG
                continue
            begin = max(kept.begin, begun - timedelta(days=1) - period)  # this clock and the service's may differ
            for name, value in values.items():
                total = _total(client, name, by, begin, begun + timedelta(days=2))
                if total != value:
                    return f"{name} is {value}, but its counts by {by} add up to {total}"
        except RejectedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        else:
            return EXACT
    return found


def _total(client: Client, name: str, by: str, begin: datetime, end: datetime) -> int:
    def look() -> int | None:
        found = client.series(name, by, begin=begin, end=end)
        return found.total if found.exact else None

    return _until(look, "counts by time did not become exact")


def _delete(client: Client, names: list[str], ledger: Ledger) -> str:
    """Remove the counters. Returns what to do if the key may not, or if they can't be read exactly just now."""
    within = APPLIED_WITHIN if ledger.exact else IF_WRONG  # a service that never reads exactly deletes nothing
    try:
        for name in names:
            _until(partial(client.delete, name), "no counter was deleted", within)
    except (RejectedError, CountersinkError) as error:
        return f"its counters remain ({error}): delete {names[0]} to {names[-1]}"
    return ""


def _until(look: Callable[[], T | None], why: str, within: float = APPLIED_WITHIN) -> T:
    """What `look` finds, as soon as it finds something."""
    begun = time.monotonic()
    said, say_at = "", begun + SILENCE
    while (now := time.monotonic()) < begun + within:
        try:
            if (found := look()) is not None:
                return found
        except UnavailableError as error:
            said = f" ({error})"
            if now >= say_at:
                note(f"countersink: {error} (trying again)")
                say_at = now + AGAIN
        time.sleep(0.1)
    raise CountersinkError(f"{why} within {within:g} s after the load{said}. countersink doctor may say why")

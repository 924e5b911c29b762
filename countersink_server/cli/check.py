"""The command check: counts on a running service, and says whether it keeps its promises.

All deltas are positive, so three numbers of a counter bound every exact reading. While a read is under way,

- the service must have what it had **accepted** before the read began, and what an exact reading had **shown** before,
- and it can't have more than what was **sent** before the read ended, without what it surely refused.

An add without a clear answer is between the two: it may have counted. One under an id is sent again until it is clear.
"""

import argparse
import json
import random
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO, TypeVar
from urllib.parse import quote

from countersink import Client
from countersink.answers import RejectedError, RequestError, UnavailableError
from countersink.calls import header_of_caller, path_of_counter
from countersink.transport import ONE_TRY, Answer, Request, Transport
from countersink_server.cli.arguments import Commands, add_prefix, command, seconds, whole
from countersink_server.cli.output import Bar, flush, json_of, note, tell
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

# What was sent, what the service answered, and which of its readings break a promise. Pure.


MOST_WRONG: Final = 10
"""Wrong readings that are kept as text. The others are counted."""


@dataclass(slots=True)
class Sums:
    """The sums of one counter."""

    sent: int = 0
    """All but what was surely refused."""
    accepted: int = 0
    shown: int = 0
    """The largest exact reading."""


class History:
    """Writes to a file, if there is one, what Jepsen's checkers read: a line of EDN when an operation begins, and one
    when it ends as `ok`, `fail` (it did not happen) or `info` (nobody knows). Call it from one thread at a time.

    The value of an operation is `[counter number]`, as independent tests of several keys have it. Each operation has a
    process of its own, since those of one thread may overlap.
    """

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._begun = time.monotonic_ns()
        self._index = 0
        self._processes = 0

    def invoke(self, function: str, counter: str, value: int | None) -> int:
        self._processes += 1
        self._write("invoke", function, counter, value, self._processes)
        return self._processes

    def complete(self, process: int, outcome: str, function: str, counter: str, value: int | None) -> None:
        self._write(outcome, function, counter, value, process)

    def _write(self, kind: str, function: str, counter: str, value: int | None, process: int) -> None:
        if self._file is None:
            return
        said = "nil" if value is None else str(value)
        self._file.write(
            f"{{:index {self._index}, :time {time.monotonic_ns() - self._begun}, :type :{kind}, :f :{function},"
            f" :value [{json.dumps(counter)} {said}], :process {process}}}\n"
        )
        self._index += 1


class Add(NamedTuple):
    """Deltas that are sent together, and the place of each in the history."""

    deltas: Mapping[str, int]
    operations: Mapping[str, int]


class Look(NamedTuple):
    """A read under way: the least that an exact reading may show of each counter, and its place in the history."""

    least: Mapping[str, tuple[int, str]]
    operations: Mapping[str, int]


@dataclass
class Ledger:
    """Threads may use it at once."""

    history: History
    exact: int = 0
    """Exact readings of a counter."""
    inexact: int = 0
    wrong: int = 0
    examples: list[str] = field(default_factory=list)
    """What was wrong with some."""
    sums: defaultdict[str, Sums] = field(default_factory=lambda: defaultdict(Sums))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def accepted_in_all(self) -> int:
        return sum(one.accepted for one in list(self.sums.values()))

    def sends(self, deltas: Mapping[str, int]) -> Add:
        with self._lock:
            for name, delta in deltas.items():
                self.sums[name].sent += delta
            return Add(deltas, {name: self.history.invoke("add", name, delta) for name, delta in deltas.items()})

    def accepted(self, add: Add) -> None:
        with self._lock:
            for name, delta in add.deltas.items():
                self.sums[name].accepted += delta
                self.history.complete(add.operations[name], "ok", "add", name, delta)

    def refused(self, add: Add) -> None:
        """The service said that it did not accept it, and no earlier try was without an answer."""
        with self._lock:
            for name, delta in add.deltas.items():
                self.sums[name].sent -= delta
                self.history.complete(add.operations[name], "fail", "add", name, delta)

    def unclear(self, add: Add) -> None:
        """Nobody knows whether it counted, and nobody asks again."""
        with self._lock:
            for name, delta in add.deltas.items():
                self.history.complete(add.operations[name], "info", "add", name, delta)

    def looks(self, names: Iterable[str]) -> Look:
        with self._lock:
            least = {}
            for name in names:
                sums = self.sums[name]
                least[name] = max(
                    (sums.accepted, "had been accepted before the read began"),
                    (sums.shown, "had been shown by an exact reading before"),
                )
            return Look(least, {name: self.history.invoke("read", name, None) for name in least})

    def saw(self, look: Look, name: str, value: int, *, exact: bool) -> None:
        with self._lock:
            if not exact:
                self.inexact += 1
                self.history.complete(look.operations[name], "info", "read", name, None)
                return
            self.history.complete(look.operations[name], "ok", "read", name, value)
            self.exact += 1
            sums, (least, why) = self.sums[name], look.least[name]
            if value < least:
                self._is_wrong(f"an exact reading of {name} was {value}, though {least} {why}")
            elif value > sums.sent:
                self._is_wrong(f"an exact reading of {name} was {value}, though no more than {sums.sent} was ever sent")
            sums.shown = max(sums.shown, value)

    def saw_nothing(self, look: Look, name: str) -> None:
        with self._lock:
            self.history.complete(look.operations[name], "fail", "read", name, None)

    def _is_wrong(self, why: str) -> None:
        self.wrong += 1
        if len(self.examples) < MOST_WRONG:
            self.examples.append(why)


class Verdict(NamedTuple):
    """Sums over all counters, after everything has ended."""

    accepted: int
    unknown: int
    """Sent without a clear answer: each may have counted, or not."""
    counted: int
    lost: int
    """Accepted and not counted."""
    doubled: int
    """Counted, though never sent so often."""


def judged(sums: Mapping[str, Sums], values: Mapping[str, int]) -> Verdict:
    all_of = [(one, values.get(name, 0)) for name, one in sums.items()]
    return Verdict(
        accepted=sum(one.accepted for one, _ in all_of),
        unknown=sum(one.sent - one.accepted for one, _ in all_of),
        counted=sum(value for _, value in all_of),
        lost=sum(max(0, one.accepted - value) for one, value in all_of),
        doubled=sum(max(0, value - one.sent) for one, value in all_of),
    )


# Clients that count and read, each in a thread of its own. They send single increments with and without ids, and
# batches under keys. What may be sent again safely is sent again until the answer is clear; now and then it is sent
# once more after that, or its answer is not waited for. Whoever kills the service meanwhile, or the network, makes this
# a harder test, and no less fair a one.


COUNTERS: Final = 8
LARGEST: Final = 5
"""The largest delta."""
IN_BATCH: Final = 3
"""Counters in a batch."""
TRY: Final = 5.0
"""Seconds of an attempt."""
HASTY: Final = 0.002
"""Seconds of an attempt whose answer nobody waits for."""
PATIENCE: Final = 60.0
"""Seconds, after the load has ended, until the answer to what is sent again must be clear."""
LONGEST_PAUSE: Final = 1.0
READERS: Final = 4
"""One client of this many reads, and one of fewer."""


class Load:
    def __init__(self, transport: Callable[[], Transport], ledger: Ledger, prefix: str) -> None:
        """Each client has a transport of its own."""
        self._transport = transport
        self._ledger = ledger
        self.names = [f"{prefix}{number}" for number in range(COUNTERS)]
        self._prefix = prefix
        self._ends = threading.Event()
        self._errors: list[Exception] = []
        self.attempts = 0
        self.failures = 0
        self.abandoned = 0
        """Attempts whose answers the load did not wait for, on purpose. They are no failures."""

    def run(self, seconds: float, clients: int, tell: Callable[[], None]) -> None:
        """`tell` is called each second."""
        readers = max(clients // READERS, 1)
        threads = [
            threading.Thread(target=self._client, args=(number < readers,), daemon=True) for number in range(clients)
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        while not self._errors and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
            tell()
        self._ends.set()
        for thread in threads:
            thread.join(PATIENCE + 2 * TRY)
        if self._errors:
            raise self._errors[0]

    def _client(self, reads: bool) -> None:
        chance = random.Random()  # noqa: S311 (no secret; ids and keys of one check must not come again in another)
        with closing(self._transport()) as transport:
            try:
                while not self._ends.is_set():
                    (self._read if reads else self._write)(transport, chance)
            except Exception as error:  # the service refuses, or a bug: the check ends, and says so
                self._errors.append(error)

    def _write(self, transport: Transport, chance: random.Random) -> None:
        name, delta = chance.choice(self.names), chance.randint(1, LARGEST)
        kind = chance.random()
        if kind < 0.2:  # noqa: PLR2004 (of all)
            self._add_once(name, delta)
        elif kind < 0.6:  # noqa: PLR2004
            body = json.dumps({"delta": delta, "id": f"{chance.getrandbits(128):032x}"}).encode()
            others = chance.sample(self.names, 2) if chance.random() < 0.1 else [name]  # noqa: PLR2004
            for one in others:  # an id counts once in each counter
                self._add(transport, chance, {one: delta}, Request("POST", path_of_counter(one), body))
        else:
            deltas = {name: chance.randint(1, LARGEST) for name in chance.sample(self.names, IN_BATCH)}
            key = {"Idempotency-Key": f"{chance.getrandbits(128):032x}"}
            body = json.dumps({"counters": deltas}).encode()
            self._add(transport, chance, deltas, Request("POST", "/v1/increments", body, key))

    def _add_once(self, name: str, delta: int) -> None:
        """Without an id it must arrive at most once, so it gets a connection of its own: a kept one may try twice."""
        add = self._ledger.sends({name: delta})
        with closing(self._transport()) as transport:
            try:
                self._attempt(transport, Request("POST", f"{path_of_counter(name)}?by={delta}"), TRY)
            except RequestError as error:
                (self._ledger.unclear if error.maybe_accepted else self._ledger.refused)(add)
                self._check(error)
            else:
                self._ledger.accepted(add)

    def _add(self, transport: Transport, chance: random.Random, deltas: Mapping[str, int], request: Request) -> None:
        add = self._ledger.sends(deltas)
        unclear, pause, give_up = False, 0.05, 0.0
        while True:
            try:
                self._attempt(transport, request, HASTY if chance.random() < 0.1 else TRY)  # noqa: PLR2004
                break
            except RequestError as error:
                unclear |= error.maybe_accepted
                if not isinstance(error, UnavailableError):
                    (self._ledger.unclear if unclear else self._ledger.refused)(add)
                    self._check(error)
                    return
            if self._ends.is_set():
                give_up = give_up or time.monotonic() + PATIENCE
                if time.monotonic() > give_up:
                    (self._ledger.unclear if unclear else self._ledger.refused)(add)
                    return
            time.sleep(pause * chance.random())
            pause = min(2 * pause, LONGEST_PAUSE)
        self._ledger.accepted(add)
        if chance.random() < 0.1:  # noqa: PLR2004 (a second use, which must not count)
            try:
                self._attempt(transport, request, TRY)
            except RequestError as error:
                self._check(error)

    def _read(self, transport: Transport, chance: random.Random) -> None:
        kind = chance.random()
        names = [chance.choice(self.names)] if kind < 0.6 else self.names  # noqa: PLR2004
        path = (
            path_of_counter(names[0])
            if len(names) == 1
            else f"/v1/counters?prefix={quote(self._prefix)}&limit=1000"
            if kind < 0.8  # noqa: PLR2004
            else "/v1/counters?" + "&".join(f"name={quote(name)}" for name in names)
        )
        look = self._ledger.looks(names)
        try:
            answer = self._attempt(transport, Request("GET", path), TRY).object
        except RequestError as error:
            for name in names:
                self._ledger.saw_nothing(look, name)
            self._check(error)
            time.sleep(0.05)
            return
        found = {one["name"]: one for one in answer.get("counters", [answer])}
        whole = answer.get("exact", True)
        for name in names:  # a list leaves out counters that do not exist: they are 0
            one = found.get(name, {"value": 0, "exact": whole})
            self._ledger.saw(look, name, one["value"], exact=one["exact"])

    def _attempt(self, transport: Transport, request: Request, seconds: float) -> Answer:
        self.attempts += 1
        try:
            return transport.attempt(request, seconds)
        except RequestError as error:
            if seconds == HASTY and isinstance(error.__cause__, TimeoutError):
                self.abandoned += 1
            else:
                self.failures += 1
            raise

    def _check(self, error: RequestError) -> None:
        """Raise an error that ends the check: the service refuses a good request, because of a key or a limit."""
        if not isinstance(error, UnavailableError):
            raise error


# The command.


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
    parser.add_argument("--seconds", type=seconds, default=SECONDS, metavar="N", help=f"how long [{SECONDS:g}]")
    parser.add_argument(
        "--clients", type=whole(2, 1_000), default=CLIENTS, metavar="N", help=f"clients at once [{CLIENTS}]"
    )
    add_prefix(parser, "what the names of its counters begin with [check:]", default="check:")
    parser.add_argument(
        "--history", metavar="FILE", help="write each operation to this file, in the form of Jepsen's histories"
    )


def _check(options: argparse.Namespace) -> None:
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

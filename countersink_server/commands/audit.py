"""The command audit: compares the sums of receipts with the shards, and counts by time with each other."""

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from countersink_server.commands.output import flush, json_of, tell
from countersink_server.commands.setup import add, connected
from shared.config.settings import receipts_live
from shared.model.errors import CountersinkError
from shared.model.receipts import HOUR
from shared.model.times import Millis, WallMillis

if TYPE_CHECKING:
    from countersink_server.commands.audit_ledger import Ledger, Line
    from shared.ports.audit_data import Accounts, Balance
    from shared.wiring.process import Parts

T = TypeVar("T")

AGREES: Final = "agrees"
DIFFERS: Final = "DIFFERS"
UNKNOWN: Final = "unknown"
PATIENCE: Final = 5.0
"""Seconds to wait until recent commits are acknowledged."""
PAUSE: Final = 0.2
_WIDEST: Final = 40
_UNLESS: Final = (
    ", unless another program wrote to it before we did, or receipts were kept for less time then: was"
    " COUNTERSINK_RETENTION raised?"
)
"""The note for stores that keep no record of what they deleted or who wrote earlier."""


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = add(
        commands,
        "audit",
        _audit,
        "compare the sums of all receipts with the shards; exit with 1 if something differs",
        more="If COUNTERSINK_WINDOWS keeps two kinds of periods, it also compares the sums of the shorter ones with"
        " the longer ones. It reads the whole store, which Datastore charges for. It changes nothing, and you can run"
        " it at any time.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="only these counters; put a name that starts with - after --"
    )
    parser.add_argument("--all", action="store_true", help="also show counters that agree")


class Verdict(NamedTuple):
    """The verdict on one counter."""

    mark: str
    said: str


@dataclass(slots=True)
class _Count:
    """The number of counters with each verdict, and other faults."""

    marks: dict[str, int] = field(default_factory=lambda: {AGREES: 0, DIFFERS: 0, UNKNOWN: 0})
    wrong: list[str] = field(default_factory=list)


async def _audit(options: argparse.Namespace) -> None:
    async with connected(options) as (settings, parts):
        await _report(parts, receipts_live(settings, of_client=False), options)


async def _report(parts: "Parts", lives: Millis, options: argparse.Namespace) -> None:
    horizon = await _horizon(parts, lives)
    balance = await _balance(parts)
    ledger = await look(parts.store, options.names, horizon, int(parts.clock.now() * 1_000))
    try:
        await parts.check_files()
        count, show = _Count(), _AuditTable(options.json, all_=options.all or bool(options.names))
        missing = {*options.names}
        for line in ledger.lines():
            verdict = judge(line, horizon)
            count.marks[verdict.mark] += 1
            show.line(line, verdict)
            missing.discard(line.counter)
        for name in sorted(missing):
            count.marks[AGREES] += 1
            show.never_seen(name)
        if balance is not None and (flaw := flaw_of(balance)):
            count.wrong.append(flaw)
        show.summary(count, ledger, balance)
        flush()
    finally:
        ledger.close()
    if count.marks[DIFFERS]:
        count.wrong.insert(0, f"{count.marks[DIFFERS]} of {sum(count.marks.values())} counters differ")
    if count.wrong:
        raise CountersinkError("; ".join(count.wrong))


async def _horizon(parts: "Parts", lives: Millis) -> float:
    """The time (s) before which receipts may be gone, by the clock that is ahead: a sweep may have used either."""
    return (await parts.store.now() - lives + HOUR) / 1_000


async def look(store: "Accounts", names: Sequence[str], horizon: float, now: WallMillis = 0) -> "Ledger":
    """The store's data, of one instant. The caller closes the ledger. `now`: when counts by time are judged."""
    from countersink_server.commands.audit_ledger import Ledger  # noqa: PLC0415 (who asks for help should not wait for it)

    async with store.audit_data() as data:
        ledger = Ledger(names, int(horizon * 1_000_000))
        try:
            await _all(data.receipts(), ledger.take_receipts)
            await _all(data.configs(), ledger.take_configs)
            await _all(data.shards(), ledger.take_shards)
            await _all(data.buckets(), ledger.take_buckets)
            ledger.compare(await data.followed(), now)
        except BaseException:
            ledger.close()
            raise
        return ledger


async def _all(pages: AsyncIterator[T], take: Callable[[T], None]) -> None:
    async for page in pages:
        take(page)


def judge(line: "Line", horizon: float) -> Verdict:
    """`horizon`: receipts of earlier writes (seconds since 1970) may have expired."""
    verdict = _of_total(line, horizon)
    if not line.torn:
        return verdict
    return Verdict(DIFFERS, f"{verdict.said}; {line.torn}" if verdict.said else line.torn)


def _of_total(line: "Line", horizon: float) -> Verdict:
    both = f"shards hold {line.held}, receipts say {line.said}"
    if line.flaw:
        return Verdict(DIFFERS, f"{line.flaw}: have the application that wrote it mend it")
    if line.held == line.said and not line.unread:
        return Verdict(AGREES, "")
    if line.unread:
        said = f"{line.unread} of it in shards that readers do not look at: raise its number of shards"
        return Verdict(DIFFERS, said if line.held == line.said else f"{said}; {both}")
    if line.others:
        return Verdict(UNKNOWN, f"another program writes it, too, or its receipts were deleted: {both}")
    if line.since is not None and line.since < horizon:
        return Verdict(UNKNOWN, f"older than receipts live: {both}")
    return Verdict(DIFFERS, f"by {line.held - line.said:+}: {both}{'' if line.since is None else _UNLESS}")


async def _balance(parts: "Parts") -> "Balance | None":
    """Wait until the balance is even, or for a while."""
    if parts.balance is None:
        return None
    until = parts.clock.monotonic() + PATIENCE
    while (balance := parts.balance()).drift and parts.clock.monotonic() < until:  # noqa: ASYNC110 (a file can't be awaited)
        await asyncio.sleep(PAUSE)
    return balance


def flaw_of(balance: "Balance") -> str:
    """What is wrong with the balance; empty if nothing is.

    Between a commit and its ack an increment counts both as applied and as pending, so the drift may be as low as
    -pending.
    """
    if -balance.pending <= balance.drift <= 0:
        return ""
    what = "accepted and neither counted nor pending" if balance.drift > 0 else "counted that were never accepted"
    return f"{abs(balance.drift)} increments were {what}"


class _AuditTable:
    """Prints line by line, as there may be millions."""

    def __init__(self, as_json: bool, *, all_: bool) -> None:
        self._json = as_json
        self._all = all_
        self._name = self._value = 0

    def line(self, line: "Line", verdict: Verdict) -> None:
        if verdict.mark == AGREES and not self._all:
            return
        if self._json:
            told = {"name": line.counter, "verdict": verdict.mark.lower(), "shards": line.held, "receipts": line.said}
            tell(json_of(told | {"unread": line.unread, "why": verdict.said}))
        else:
            self._row(verdict.mark, line.counter, line.held - line.unread, verdict.said)

    def never_seen(self, name: str) -> None:
        if self._json:
            told = {"name": name, "verdict": AGREES, "shards": 0, "receipts": 0, "unread": 0, "why": "never seen"}
            tell(json_of(told))
        else:
            self._row(AGREES, name, 0, "never seen")

    def _row(self, mark: str, name: str, value: int, said: str) -> None:
        self._name = max(self._name, min(len(name), _WIDEST))
        self._value = max(self._value, len(str(value)))
        tell(f"{mark:7}  {name:{self._name}}  {value:>{self._value}}  {said}".rstrip())

    def summary(self, count: _Count, ledger: "Ledger", balance: "Balance | None") -> None:
        if self._json:
            told = {mark.lower(): number for mark, number in count.marks.items()}
            tally = {"applied": ledger.tally.applied, "deduplicated": ledger.tally.deduplicated}
            tally |= {"dead": ledger.tally.dead, "receipts": ledger.receipts}
            even = {"pending": None, "drift": None} if balance is None else balance._asdict()
            tell(json_of({"counters": told} | tally | even | {"compared": ledger.compared}))
            return
        for sentence in _sentences(count, ledger, balance):
            tell(sentence)


def _sentences(count: _Count, ledger: "Ledger", balance: "Balance | None") -> Iterator[str]:
    marks, tally = count.marks, ledger.tally
    yield f"counters: {marks[AGREES]} agree, {marks[DIFFERS]} differ, {marks[UNKNOWN]} can't be judged"
    yield (
        f"receipts: {ledger.receipts}, of {tally.applied} increments applied, {tally.deduplicated} deduplicated,"
        f" {tally.dead} dead-lettered"
    )
    if ledger.compared:
        yield f"counts by time: {ledger.compared} hours and days compared with the shorter periods in them"
    if balance is None:
        yield "pending: not known here, the broker is elsewhere"
    elif balance.drift:
        yield f"pending: {balance.pending} increments, some of them being settled; drift {balance.drift}"
    else:
        yield f"pending: {balance.pending} increments; drift 0: no increment is missing"

"""The command audit: compares the sums of receipts with the shards, and counts by time with each other.

Its sums are on disk (`Ledger`), since there may be millions of counters.
"""

import argparse
import asyncio
import sqlite3
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple, TypeVar

from countersink_server.cli.arguments import Commands
from countersink_server.cli.output import flush, json_of, tell
from countersink_server.cli.setup import add, connected
from countersink_server.cli.target import settings_of
from shared.config.settings import receipts_live
from shared.model.buckets import FOR_EVER, HOUR, LENGTHS, Followed, Millis, WallMillis, retention_of, written_at
from shared.model.errors import CountersinkError, amount
from shared.model.receipts import Tally, read_note
from shared.ports.store import Accounts, Balance, BucketShard, Config, Shard, StoredReceipt
from shared.wiring.files import refuse_older
from shared.wiring.process import Parts

T = TypeVar("T")

AGREES: Final = "agrees"
DIFFERS: Final = "DIFFERS"
UNKNOWN: Final = "unknown"
ACKNOWLEDGED_WITHIN: Final = 5.0
"""Seconds to wait until recent commits are acknowledged."""
PAUSE: Final = 0.2
_WIDEST: Final = 40
_UNLESS: Final = (
    ", unless another program wrote to it before we did, or receipts were kept for less time then: was"
    " COUNTERSINK_RETENTION raised?"
)
"""The note for stores that keep no record of what they deleted or who wrote earlier."""


def add_commands(commands: Commands) -> None:
    parser = add(
        commands,
        "audit",
        _audit,
        more="If COUNTERSINK_WINDOWS keeps two kinds of periods, it also compares the sums of the shorter ones with"
        " the longer ones. It reads the whole store, which Datastore charges for. It changes nothing, and you can run"
        " it at any time.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="only these counters; put a name that starts with - after --"
    )
    parser.add_argument("--all", action="store_true", help="also show counters that agree")


class Verdict(NamedTuple):
    mark: str
    said: str


async def _audit(options: argparse.Namespace) -> None:
    settings = settings_of(options)
    refuse_older(settings)
    async with connected(settings) as parts:
        await _report(parts, receipts_live(settings, of_client=False), options)


async def _report(parts: Parts, lives: Millis, options: argparse.Namespace) -> None:
    horizon = await _horizon(parts, lives)
    balance = await _balance(parts)
    ledger = await look(parts.store, options.names, horizon, int(parts.clock.now() * 1_000))
    try:
        await parts.check_files()
        show = _AuditTable(options.json, all_=options.all or bool(options.names))
        marks, wrong = dict.fromkeys((AGREES, DIFFERS, UNKNOWN), 0), list[str]()
        missing = {*options.names}
        for line in ledger.lines():
            verdict = judge(line, horizon)
            marks[verdict.mark] += 1
            show.line(line, verdict)
            missing.discard(line.counter)
        for name in sorted(missing):
            marks[AGREES] += 1
            show.line(Line(name, 0, 0, 0, None, others=False), Verdict(AGREES, "never seen"))
        if balance is not None and (flaw := flaw_of(balance)):
            wrong.append(flaw)
        show.summary(marks, ledger, balance)
        flush()
    finally:
        ledger.close()
    if marks[DIFFERS]:
        wrong.insert(0, f"{marks[DIFFERS]} of {sum(marks.values())} counters differ")
    if wrong:
        raise CountersinkError("; ".join(wrong))


async def _horizon(parts: Parts, lives: Millis) -> float:
    """The time (s) before which receipts may be gone, by the clock that is ahead: a sweep may have used either."""
    return (await parts.store.now() - lives + HOUR) / 1_000


async def look(store: Accounts, names: Sequence[str], horizon: float, now: WallMillis = 0) -> "Ledger":
    """The store's data, of one instant. The caller closes the ledger. `now`: when counts by time are judged."""
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
        return Verdict(DIFFERS, f"{line.flaw}: correct it with the application that wrote it")
    if line.held == line.said and not line.unread:
        return Verdict(AGREES, "")
    if line.unread:
        said = f"{line.unread} of it in shards that readers do not look at: raise its number of shards"
        return Verdict(DIFFERS, said if line.held == line.said else f"{said}; {both}")
    if line.others:
        return Verdict(UNKNOWN, f"another program writes to it, too, or its receipts were deleted: {both}")
    if line.since is not None and line.since < horizon:
        return Verdict(UNKNOWN, f"it is older than receipts live: {both}")
    return Verdict(DIFFERS, f"by {line.held - line.said:+}: {both}{'' if line.since is None else _UNLESS}")


async def _balance(parts: Parts) -> Balance | None:
    """Wait until the balance is even, or for a while."""
    if parts.balance is None:
        return None
    until = parts.clock.monotonic() + ACKNOWLEDGED_WITHIN
    while (balance := parts.balance()).drift and parts.clock.monotonic() < until:  # noqa: ASYNC110 (a file can't be awaited)
        await asyncio.sleep(PAUSE)
    return balance


def flaw_of(balance: Balance) -> str:
    """What is wrong with the balance; empty if nothing is.

    Between a commit and its ack an increment counts both as applied and as pending, so the drift may be as low as
    -pending.
    """
    if -balance.pending <= balance.drift <= 0:
        return ""
    what = "accepted and neither counted nor pending" if balance.drift > 0 else "counted but never accepted"
    return f"{amount(abs(balance.drift), 'increment was', 'increments were')} {what}"


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
            value = line.held - line.unread
            self._name = max(self._name, min(len(line.counter), _WIDEST))
            self._value = max(self._value, len(str(value)))
            row = f"{verdict.mark:7}  {line.counter:{self._name}}  {value:>{self._value}}  {verdict.said}"
            tell(row.rstrip())

    def summary(self, marks: Mapping[str, int], ledger: "Ledger", balance: Balance | None) -> None:
        if self._json:
            told = {mark.lower(): number for mark, number in marks.items()}
            tally = {"applied": ledger.tally.applied, "deduplicated": ledger.tally.deduplicated}
            tally |= {"dead": ledger.tally.dead, "receipts": ledger.receipts}
            even = {"pending": None, "drift": None} if balance is None else balance._asdict()
            tell(json_of({"counters": told} | tally | even | {"compared": ledger.compared}))
            return
        for sentence in _sentences(marks, ledger, balance):
            tell(sentence)


def _sentences(marks: Mapping[str, int], ledger: "Ledger", balance: Balance | None) -> Iterator[str]:
    tally = ledger.tally
    yield f"counters: {marks[AGREES]} agree, {marks[DIFFERS]} differ, {marks[UNKNOWN]} can't be judged"
    yield (
        f"receipts: {ledger.receipts}, of {amount(tally.applied, 'increment')} applied,"
        f" {tally.deduplicated} deduplicated, {tally.dead} dead-lettered"
    )
    if ledger.compared:
        yield f"counts by time: {ledger.compared} hours and days compared with the shorter periods in them"
    if balance is None:
        yield "pending: not known here, the broker is elsewhere"
    elif balance.drift:
        yield f"pending: {amount(balance.pending, 'increment')}, some of them being settled; drift {balance.drift}"
    else:
        yield f"pending: {amount(balance.pending, 'increment')}; drift 0: no increment is missing"


# The counts by time in an audit: finds where the shorter periods of a longer one do not add up to it.


HALF: Final = 32
"""Bits of the lower half of a sum, which may be too large for one column."""
MASK: Final = 2**HALF - 1
_ADD_BUCKET: Final = (
    "INSERT INTO buckets VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET high = high + excluded.high, low = low + excluded.low"
)
_SUMS: Final = """
    SELECT counter, at, sum(short * high), sum(short * low), sum((1 - short) * high), sum((1 - short) * low)
    FROM (
        SELECT counter, begin - begin % ? AS at, high, low, period = ? AS short FROM buckets WHERE period IN (?, ?)
    ) GROUP BY counter, at ORDER BY counter, at
"""
_PAGE: Final = 500


def whole_since(followed: Collection[Followed], counter: str, short: str, long: str, now: WallMillis) -> WallMillis:
    """Since when all commits added to both periods, and none of it has expired."""
    begin = 0 if followed else FOR_EVER
    for rules, until in followed:
        kept = [retention_of(rules, counter, by) for by in (short, long)]
        oldest = FOR_EVER if None in kept else now - min(each for each in kept if each is not None)
        begin = max(begin, min(until, oldest))
    return begin


def _said(short: str, long: str, at: WallMillis, parts: int, whole: int) -> str:
    return f"the {short}s of the {long} from {written_at(at / 1_000)} sum to {parts}, and the {long} has {whole}"


# The sums of an audit, for each counter, on disk: there may be millions of counters.


_TABLES: Final = """
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE said (counter TEXT PRIMARY KEY, high INTEGER, low INTEGER) WITHOUT ROWID;
    CREATE TABLE held (counter TEXT PRIMARY KEY, high INTEGER, low INTEGER) WITHOUT ROWID;
    CREATE TABLE unread (counter TEXT PRIMARY KEY, high INTEGER, low INTEGER) WITHOUT ROWID;
    CREATE TABLE configs (counter TEXT PRIMARY KEY, num_shards INTEGER, since REAL) WITHOUT ROWID;
    CREATE TABLE commits (time INTEGER PRIMARY KEY);
    CREATE TABLE others (counter TEXT PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE flaws (counter TEXT PRIMARY KEY, flaw TEXT) WITHOUT ROWID;
    CREATE TABLE buckets (
        counter TEXT, period TEXT, begin INTEGER, high INTEGER, low INTEGER, PRIMARY KEY (counter, period, begin)
    ) WITHOUT ROWID;
    CREATE TABLE torn (counter TEXT PRIMARY KEY, said TEXT) WITHOUT ROWID;
"""
_ADD_SUM: Final = (
    "INSERT INTO {} VALUES (?, ?, ?)"
    " ON CONFLICT (counter) DO UPDATE SET high = high + excluded.high, low = low + excluded.low"
)
_LINES: Final = """
    SELECT n.counter, s.high, s.low, h.high, h.low, u.high, u.low, c.since, o.counter IS NOT NULL, f.flaw, t.said
    FROM (
        SELECT counter FROM configs UNION SELECT counter FROM said UNION SELECT counter FROM held
        UNION SELECT counter FROM torn UNION SELECT counter FROM flaws
    ) n
    LEFT JOIN said s USING (counter) LEFT JOIN held h USING (counter) LEFT JOIN unread u USING (counter)
    LEFT JOIN configs c USING (counter) LEFT JOIN others o USING (counter) LEFT JOIN flaws f USING (counter)
    LEFT JOIN torn t USING (counter)
    ORDER BY n.counter
"""


class Line(NamedTuple):
    counter: str
    said: int
    """The sum according to receipts, including deleted ones that are carried on."""
    held: int
    """The sum of its shards, including shards that readers do not look at."""
    unread: int
    """The sum of shards that readers do not look at."""
    since: float | None
    """See `Config.since`. None if there is no config."""
    others: bool
    """Whether another application was the last to write one of its shards."""
    flaw: str = ""
    """Why its shards can't be read; empty if they can."""
    torn: str = ""
    """Which of its counts by time do not add up; empty if all do that can be compared."""


class Ledger:
    """Collects what the store holds. Fill it in this order: receipts, configs, shards, buckets."""

    def __init__(self, names: Collection[str], written_since: int) -> None:
        """`names`: only these counters; empty means all. `written_since`: all later writes must have a receipt."""
        self.tally = Tally()
        """The sums of the tallies in all receipts."""
        self.receipts = 0
        self.compared = 0
        """The longer periods that were compared with the shorter ones in them."""
        self._names = frozenset(names)
        self._written_since = written_since
        self._db = sqlite3.connect("", isolation_level=None)  # a temporary file that SQLite deletes by itself
        self._db.executescript(_TABLES)
        self.close = weakref.finalize(self, self._db.close)

    def take_receipts(self, page: Sequence[StoredReceipt]) -> None:
        sums: dict[str, int] = {}
        commits = []
        for receipt, time in page:
            note = read_note(receipt.note)
            self.tally = Tally(*[one + other for one, other in zip(self.tally, note.tally, strict=True)])
            if note.sums:
                commits.append((time,))
            for counter, delta in note.sums.items():
                if self._asked(counter):
                    sums[counter] = sums.get(counter, 0) + delta
        self.receipts += len(page)
        self._add("said", sums)
        self._db.executemany("INSERT OR IGNORE INTO commits VALUES (?)", commits)

    def take_configs(self, page: Sequence[Config]) -> None:
        asked = [config for config in page if self._asked(config.counter)]
        rows = [(config.counter, config.num_shards, config.since) for config in asked]
        self._db.executemany("INSERT OR REPLACE INTO configs VALUES (?, ?, ?)", rows)
        self._add("said", {config.counter: config.carried for config in asked})
        self._add_flaws((config.counter, config.flaw) for config in asked)

    def take_shards(self, page: Sequence[Shard]) -> None:
        held: dict[str, int] = {}
        unread: dict[str, int] = {}
        self._add_flaws((shard.counter, shard.flaw) for shard in page if self._asked(shard.counter))
        for counter, number, count, written, _ in page:
            if self._asked(counter):
                held[counter] = held.get(counter, 0) + count
                if number >= self._num_shards(counter):
                    unread[counter] = unread.get(counter, 0) + count
                if written and written >= self._written_since and not self._ours(written):
                    self._db.execute("INSERT OR IGNORE INTO others VALUES (?)", (counter,))
        self._add("held", held)
        self._add("unread", unread)

    def take_buckets(self, page: Sequence[BucketShard]) -> None:
        asked = [one for one in page if self._asked(one.bucket.counter)]
        self._db.executemany(_ADD_BUCKET, [(*one.bucket, one.held >> HALF, one.held & MASK) for one in asked])
        self._add_flaws((one.bucket.counter, one.flaw) for one in asked)

    def compare(self, followed: Collection[Followed], now: WallMillis) -> None:
        """Compare the counts by time with each other, and keep the first difference of each counter. `now`: the time by
        which they expire.
        """
        for short, long in combinations(LENGTHS, 2):
            last, begin = None, FOR_EVER
            rows = self._db.execute(_SUMS, (LENGTHS[long], short, short, long))
            while page := rows.fetchmany(_PAGE):
                torn = []
                for counter, at, *halves in page:
                    if counter != last:
                        last, begin = counter, whole_since(followed, counter, short, long, now)
                    if at >= begin:
                        self.compared += 1
                        parts, whole = [(high << HALF) + low for high, low in (halves[:2], halves[2:])]
                        if parts != whole:
                            torn.append((counter, _said(short, long, at, parts, whole)))
                self._db.executemany("INSERT OR IGNORE INTO torn VALUES (?, ?)", torn)

    def lines(self) -> Iterator[Line]:
        rows = self._db.execute(_LINES)
        while page := rows.fetchmany(_PAGE):
            for counter, *halves, since, others, flaw, torn in page:
                said, held, unread = [
                    ((high or 0) << HALF) + (low or 0) for high, low in zip(halves[::2], halves[1::2], strict=True)
                ]
                yield Line(counter, said, held, unread, since, bool(others), flaw or "", torn or "")

    def _asked(self, counter: str) -> bool:
        return not self._names or counter in self._names

    def _num_shards(self, counter: str) -> int:
        row = self._db.execute("SELECT num_shards FROM configs WHERE counter = ?", (counter,)).fetchone()
        return row[0] if row else 0

    def _ours(self, time: int) -> bool:
        return self._db.execute("SELECT 1 FROM commits WHERE time = ?", (time,)).fetchone() is not None

    def _add_flaws(self, flaws: Iterable[tuple[str, str]]) -> None:
        rows = [(counter, flaw) for counter, flaw in flaws if flaw]
        self._db.executemany("INSERT OR IGNORE INTO flaws VALUES (?, ?)", rows)

    def _add(self, table: str, sums: dict[str, int]) -> None:
        rows = [(counter, delta >> HALF, delta & MASK) for counter, delta in sums.items()]
        self._db.executemany(_ADD_SUM.format(table), rows)

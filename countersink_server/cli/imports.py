"""The command import: adds what another application has counted to our counters. One commit adds what a total has grown
by since the last import, and moves the mark that records it.
"""

import argparse
import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from countersink_server.cli.arguments import Commands, add_prefix
from countersink_server.cli.output import Bar, flush, json_of, plain, tell
from countersink_server.cli.setup import add, connected
from countersink_server.cli.target import cause_of, line_of, settings_of
from shared.config.settings import Settings, receipts_live
from shared.model.buckets import Millis, StoreMillis
from shared.model.errors import (
    AlreadyAppliedError,
    ChangedError,
    CountersinkError,
    LateError,
    RefusedError,
    SettingsError,
    ShardFullError,
    ShrunkError,
    StorageFullError,
    TransientError,
    amount,
)
from shared.model.fleet import begun
from shared.model.moving import FIRESTORE, OTHERS, REDIS, VARIANTS, By, Foreign, Source
from shared.model.receipts import Tally, key_of_import, notes_of_commit
from shared.model.words import MARKED, MAX_SUM, Bounds, Commit, Mark, Receipt, add_to, flaw_of_name
from shared.ports.overlay import Overlay
from shared.ports.store import Store
from shared.runtime.clock import Clock
from shared.runtime.ids import mint
from shared.runtime.retry import Backoff, insist, within
from shared.wiring.moving import source_of
from shared.wiring.process import Parts

T = TypeVar("T")

BATCH: Final = 100
"""Counters in a commit. Each needs three entities, and some stores accept 500 in a commit."""
AT_ONCE: Final = 4
RETRY_FOR: Final = 20.0
"""Seconds to retry while the store fails or other imports are faster."""


class ImportOutcome(NamedTuple):
    name: str
    total: int
    """Its total in the source."""
    added: int
    flaw: str = ""
    """Why it was not imported; empty if it was."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    receipts_live: Millis
    shards: int = 1
    """Shards of a counter that does not exist here yet."""
    dry: bool = False
    """Report what would be added, and write nothing."""
    shrink: bool = False
    """If a counter is now lower than its mark, subtract the difference."""


@dataclass(eq=False)
class Importer:
    source: Source
    store: Store
    overlay: Overlay
    clock: Clock
    options: ImportOptions
    pick: Callable[[int], int] = random.randrange
    backoff: Callable[[], Backoff] = lambda: Backoff(0.01, 1.0)

    async def run(self, prefix: str, tell: Callable[[ImportOutcome | str], None]) -> None:
        """Import all counters whose names start with `prefix`. `tell` hears of each as soon as it is done."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def take(batch: Mapping[str, int]) -> None:
            try:
                for outcome in await self._take(_Work(dict(batch))):
                    tell(outcome)
            finally:
                slots.release()

        async with asyncio.TaskGroup() as group, aclosing(self._batches(prefix, tell)) as batches:
            async for batch in batches:
                await slots.acquire()
                group.create_task(take(batch), name="import")

    async def _batches(
        self, prefix: str, tell: Callable[[ImportOutcome | str], None]
    ) -> AsyncGenerator[Mapping[str, int], None]:
        batch: dict[str, int] = {}
        async with aclosing(self.source.counters(prefix)) as counters:
            async for one in counters:
                if isinstance(one, str):
                    tell(one)
                elif flaw := flaw_of(one):
                    tell(ImportOutcome(one.name, one.total, 0, flaw))
                else:
                    batch[one.name] = one.total
                if len(batch) >= BATCH:
                    yield batch
                    batch = {}
        if batch:
            yield batch

    async def _take(self, work: "_Work") -> list[ImportOutcome]:
        until = self.clock.monotonic() + RETRY_FOR
        backoff = self.backoff()
        while work.totals and (todo := await self._todo(work)):
            try:
                done = await self._apply(await self._commit(todo, work.full))
            except ShardFullError as error:
                work.full.update(error.shards)
                continue
            except RefusedError as error:
                return await self._apart(work, str(error))
            if done:
                work.add(todo)
            elif self.clock.monotonic() < until:
                await backoff.wait()
            else:
                raise TransientError("another import of the same source is running: run this one again when it is done")
        return work.outcomes

    async def _todo(self, work: "_Work") -> list[Mark]:
        """The next additions, in steps that a shard can take."""
        marks = await self._insist(lambda: self.store.marks(self.source.name, [*work.totals]))
        todo: list[Mark] = []
        for name in [*work.totals]:
            mark, flaw = marks.get(name, 0), ""
            if went_back(work.totals[name], mark):
                work.totals[name], flaw = await self._again(name, mark)
            rest = 0 if flaw else work.totals[name] - mark
            if rest and not self.options.dry:
                todo.append(Mark(self.source.name, name, mark, mark + max(-MAX_SUM, min(rest, MAX_SUM))))
            else:
                work.close(name, rest, flaw)
        return todo

    async def _apart(self, work: "_Work", why: str) -> list[ImportOutcome]:
        """Import each half alone: the store does not say which counter it refuses."""
        names = [*work.totals]
        if len(names) == 1:
            work.close(names[0], 0, f"the store refuses it: {why}")
            return work.outcomes
        middle = len(names) // 2
        halves = [{name: work.totals[name] for name in half} for half in (names[:middle], names[middle:])]
        return [*work.outcomes, *[one for half in halves for one in await self._take(_Work(half, added=work.added))]]

    async def _again(self, name: str, mark: int) -> tuple[int, str]:
        """Read again a counter that is lower than its mark: another import may have seen a later total meanwhile."""
        one = await self._insist(lambda: self.source.counter(name)) or Foreign(name)
        flaw = flaw_of(one)
        if not flaw and went_back(one.total, mark) and not self.options.shrink:
            flaw = f"its total fell to {one.total}, and {mark} were imported before: subtract with --shrink"
        return one.total, flaw

    async def _commit(self, todo: Sequence[Mark], full: set[tuple[str, int]]) -> Commit:
        numbers = await self._insist(lambda: self.store.shards([mark.counter for mark in todo]))
        adds = []
        for mark in todo:
            known = numbers.get(mark.counter, 0)
            its = frozenset(shard for name, shard in full if name == mark.counter)
            delta = mark.total - mark.seen
            adds.append(add_to(mark.counter, delta, known, new=self.options.shards, full=its, pick=self.pick))
        commit_id = mint()
        (note,) = notes_of_commit([""], commit_id, Tally(), {add.counter: add.delta for add in adds})
        now = await self._insist(self.store.now)
        receipt = Receipt(key_of_import(commit_id), StoreMillis(now + self.options.receipts_live), note=note)
        changes = tuple([mark.counter for mark in todo])
        epoch = await self._insist(lambda: self.overlay.mark(receipt.key, changes))
        bounds = Bounds() if epoch is None else Bounds(StoreMillis(now + MARKED), epoch=epoch)
        return Commit((receipt,), tuple(adds), marks=tuple(todo), bounds=bounds, changes=changes)

    async def _apply(self, commit: Commit) -> bool:
        key = commit.receipts[0].key
        try:
            time = await self._insist(lambda: self.store.apply(commit))
        except (AlreadyAppliedError, ChangedError, LateError, ShrunkError):
            time, found = await self._insist(lambda: self.store.receipts([key]))
            if key not in found:  # it exists if an earlier attempt was committed and its answer lost
                return False
        await self._insist(lambda: self.overlay.changed(commit.changes, time, key))
        return True

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        limit = within(RETRY_FOR, self.clock)
        return await insist(call, TransientError, limit, self.backoff(), never=StorageFullError)


def went_back(total: int, mark: int) -> bool:
    """Whether the total is nearer to zero than the mark, as after a reset or when shards were lost."""
    return (total - mark) * mark < 0


@dataclass(slots=True)
class _Work:
    totals: dict[str, int]
    """Totals of the counters that are not done."""
    outcomes: list[ImportOutcome] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)
    full: set[tuple[str, int]] = field(default_factory=set)
    """Shards that are full."""

    def add(self, marks: Sequence[Mark]) -> None:
        for _, name, seen, total in marks:
            self.added[name] = self.added.get(name, 0) + total - seen
            if self.totals[name] == total:
                self.close(name, 0, "")

    def close(self, name: str, rest: int, flaw: str) -> None:
        self.outcomes.append(ImportOutcome(name, self.totals.pop(name), self.added.get(name, 0) + rest, flaw))


def flaw_of(one: Foreign) -> str:
    """Why this counter can't be imported; empty if it can."""
    if one.flaw:
        return one.flaw
    flaw = flaw_of_name(one.name)
    return "" if flaw is None else f"its name {flaw}"


# The command.


MOST_LEFT_OUT: Final = 20
"""Flaws that are shown. With the wrong --from format every shard has one."""
_WIDEST: Final = 40


def add_commands(commands: Commands) -> None:
    parser = add(
        commands,
        "import",
        _import,
        more="You can kill it, repeat it, and run it while the other application counts. It writes nothing"
        " there. It exits with 1 if something could not be imported.",
    )
    known = {one.name: one.what for one in VARIANTS.values()} | OTHERS
    variants = "; ".join(f"{name}: {what}" for name, what in known.items())
    parser.add_argument(
        "--variant", required=True, choices=known, metavar="V", help=f"which application's data. {variants}"
    )
    parser.add_argument(
        "--from",
        dest="place",
        required=True,
        metavar="URL",
        help="where the data is: datastore://PROJECT[/DATABASE][?namespace=NS]; for export: the file; for redis:"
        " redis://HOST[:PORT][/NUMBER]; for firestore-counter: firestore://PROJECT[/DATABASE]/COLLECTION",
    )
    parser.add_argument(
        "--field",
        dest="fields",
        action="append",
        default=[],
        metavar="FIELD",
        help="for firestore-counter: the field of the documents that counts, such as visits or stats.visits",
    )
    parser.add_argument(
        "--match", default="*", metavar="PATTERN", help="for redis: the keys to read, such as 'page:*' [all]"
    )
    add_prefix(parser, "only counters whose names start with P", default="")
    kinds = ", ".join(f"{one.name}: {one.shard or 'required'}" for one in VARIANTS.values() if one.renamed)
    parser.add_argument(
        "--kind", default="", metavar="K", help=f"kind of the shards, if the variant allows several [{kinds}]"
    )
    parser.add_argument(
        "--name",
        dest="names",
        action="append",
        default=[],
        metavar="NAME",
        help="for simple: the name of the counter here; for java: the names of the counters, if the server"
        " cannot list kinds",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be added, and write nothing")
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="subtract the difference if a counter went down [report it and leave it as it is]",
    )
    parser.add_argument("--all", action="store_true", help="show all counters [only those that could not be imported]")


async def _import(options: argparse.Namespace) -> None:
    check(options)
    settings = settings_of(options)
    async with (
        connected(settings) as parts,
        source_of(
            settings,
            options.variant,
            options.place,
            kind=options.kind,
            names=options.names,
            match=options.match,
            fields=options.fields,
        ) as source,
    ):
        await _run(source, parts, settings, options)


def check(options: argparse.Namespace) -> None:
    name, kind, names, refuse = options.variant, options.kind, options.names, options.refuse
    match, fields = options.match, options.fields
    variant = VARIANTS.get(name)
    if match != "*" and name != REDIS:
        refuse(f"argument --match: {name} has no keys to match")
    if bool(fields) != (name == FIRESTORE):
        refuse(f"argument --field: {name} {'has no fields' if fields else 'needs it'}")
    if variant is None:
        if kind:
            refuse(f"argument --kind: {name} has no kinds")
        if names:
            refuse(f"argument --name: counters of {name} have names")
        return
    if kind and not variant.renamed:
        refuse(f"argument --kind: the kinds of {variant.name} have names of their own")
    if not variant.kinds(kind):
        refuse(f"argument --kind: {variant.name} needs it")
    if variant.by is By.ALL and len(names) != 1:
        refuse(f"argument --name: {variant.name} needs one")
    if names and variant.by not in {By.ALL, By.KIND}:
        refuse(f"argument --name: counters of {variant.name} have names")


async def _run(source: Source, parts: Parts, settings: Settings, options: argparse.Namespace) -> None:
    chosen = ImportOptions(
        receipts_live(settings, of_client=False), settings.shards, dry=options.dry_run, shrink=options.shrink
    )
    report = Report(options.json, all_=options.all, dry=options.dry_run)
    await parts.open()
    importer = Importer(source, parts.store, parts.overlay, parts.clock, chosen)
    try:
        if parts.looks is not None and not options.dry_run:
            await parts.looks.change(begun)
        await importer.run(options.prefix, report.take)
    except Exception as error:
        report.end()
        if isinstance(cause := cause_of(error), SettingsError):  # it would fail again
            raise cause from error
        raise CountersinkError(f"{line_of(error)} (run it again: what was added is not added twice)") from error
    report.end()
    if report.refused:
        raise CountersinkError(f"{report.refused} of {report.found} counters could not be imported, see above")
    if not report.held:
        also = ["--variant", "--from"]
        also += ["--match (a pattern of Redis, such as page:*)"] if options.match != "*" else []
        also += ["--prefix (the beginning of names)"] if options.prefix else []
        raise CountersinkError(f"all counters in {source.name} are 0 or missing: check {' and '.join(also)}")


@dataclass(slots=True)
class Report:
    json: bool
    all_: bool = field(kw_only=True)
    dry: bool = field(kw_only=True)
    found: int = 0
    changed: int = 0
    added: int = 0
    refused: int = 0
    left_out: int = 0
    held: int = 0
    """Counters whose total is not 0."""
    _bar: Bar = field(default_factory=Bar)
    _name: int = 0

    def take(self, one: ImportOutcome | str) -> None:
        if isinstance(one, str):
            self.left_out += 1
            if self.left_out <= MOST_LEFT_OUT:
                tell(json_of({"left_out": one}) if self.json else plain(one))
        else:
            self.found += 1
            self.changed += bool(one.added)
            self.added += one.added
            self.refused += bool(one.flaw)
            self.held += bool(one.total)
            if one.flaw or self.all_ or (self.dry and one.added):
                self._tell(one)
        self._bar.show_at_times(f"{amount(self.found, 'counter')}, {self.changed} with something to add")

    def _tell(self, one: ImportOutcome) -> None:
        if self.json:
            tell(json_of({"name": one.name, "there": one.total, "added": one.added, "why_not": one.flaw or None}))
            return
        self._name = max(self._name, min(len(one.name), _WIDEST))
        what = f"NOT imported: {one.flaw}" if one.flaw else f"{one.added:+}" if one.added else "unchanged"
        tell(plain(f"{one.name:{self._name}}  {what}"))

    def end(self) -> None:
        unchanged = self.found - self.changed - self.refused
        if self.json:
            counters = {"found": self.found, "added": self.changed, "unchanged": unchanged, "refused": self.refused}
            tell(json_of({"counters": counters, "added": self.added, "left_out": self.left_out, "dry_run": self.dry}))
        else:
            would = "would be added to" if self.dry else "added to"
            tell(
                f"counters: {self.found}; {would} {self.changed} of them, {self.added:+} in all; {unchanged} unchanged,"
                f" {self.refused} not imported"
            )
            if self.left_out:
                entities = amount(self.left_out, "entity", "entities")
                tell(f"left out: {entities} that the other application does not count either")
        flush()

"""The command import: adds what another application has counted to our counters, and moves the marks that record
it.
"""

import argparse
from dataclasses import dataclass, field
from typing import Final

from countersink_server.cli.arguments import Commands, add_prefix
from countersink_server.cli.output import Bar, flush, json_of, plain, tell
from countersink_server.cli.setup import add, connected
from countersink_server.cli.target import cause_of, line_of, settings_of
from countersink_server.move.importer import Importer, ImportOptions, ImportOutcome
from shared.config.settings import Settings, receipts_live
from shared.model.errors import CountersinkError, SettingsError, amount
from shared.model.fleet import begun
from shared.model.moving import FIRESTORE, OTHERS, REDIS, VARIANTS, By, Source
from shared.wiring.moving import source_of
from shared.wiring.process import Parts

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
        if isinstance(cause := cause_of(error), SettingsError):  # of the source, so name no data; it would fail again
            options.target = ""
            if report.found:
                report.end()
            raise cause from error
        report.end()
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
                tell(f"left out: {self.left_out:,}, see above")
        flush()

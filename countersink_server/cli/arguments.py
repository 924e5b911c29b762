"""Parses the command line: its numbers, its width, and how wrong usage is reported."""

import argparse
import contextlib
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from shared.config.lists import days_of, duration_of
from shared.model.buckets import millis_of

COMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "serve": {
        "up": "run ingest and a flusher in one process, on one SQLite file",
        "ingest": "run ingest alone",
        "flusher": "run a flusher alone; start as many as you like",
    },
    "counters": {
        "incr": "add to a counter",
        "get": "print totals",
        "list": "list counters in the order of their names",
        "set": "set a counter to a value; later increments add to it",
        "reset": "set a counter to 0",
        "delete": "set a counter to 0, and remove it from lists until it is counted again",
        "shards": "change the number of a counter's shards",
    },
    "watch": {"watch": "show counters as they change, until Ctrl-C"},
    "status": {"status": "show what a running service does; exit with 1 if it is not ready"},
    "keys": {"keys": "make, list and revoke keys"},
    "setup": {
        "provision": "create what is missing: topic, subscription, dead letters, TTL policy, or the SQLite file",
        "doctor": "check the setup, and say what is wrong and what to do; exit with 1 if something FAILs",
        "sweep": "delete expired receipts and jobs, as flushers do regularly",
        "backup": "copy the SQLite file while the service runs",
    },
    "plan": {"plan": "say how many processes this much traffic needs, and what it costs on Google Cloud"},
    "dead_letters": {"dlq": "dead letters: messages that were accepted and could not be counted"},
    "map": {"map": "change or export all counters under a prefix"},
    "audit": {"audit": "compare the sums of all receipts with the shards; exit with 1 if something differs"},
    "check": {"check": "count on a running service, and check that it keeps its promises"},
    "imports": {"import": "add the counters of another application; repeat it to add the difference"},
    "copy": {"copy": "copy counters, counts by time and what is remembered of clients from one store to another"},
    "completion": {"completion": "print a script that completes commands and options in a shell"},
}
"""The commands of each module here, and their helps. A module is imported if one of its commands is asked for."""
HELPS: Final = {name: help_ for commands in COMMANDS.values() for name, help_ in commands.items()}
Commands: TypeAlias = "argparse._SubParsersAction[Any]"  # noqa: SLF001 (it has no other name)
LINES: Final = "print one JSON object per line"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,100}")
WIDEST: Final = 100
"""Columns of a help, however wide the terminal is."""


def columns() -> int:
    return min(shutil.get_terminal_size().columns, WIDEST)


class CommandParser(argparse.ArgumentParser):
    """Wrong usage of a command is reported with the usage of this command, not with that of `countersink`."""

    def __init__(self, **options: Any) -> None:
        kind = options.pop("formatter_class", argparse.HelpFormatter)
        super().__init__(allow_abbrev=False, formatter_class=lambda prog: kind(prog, width=columns()), **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, more = super().parse_known_args(args, namespace)
        if more:
            hint = "" if more[0].startswith("-") else " (put a name with spaces in quotes; --help lists the options)"
            self.error(f"unrecognized arguments: {' '.join(more)}{hint}")
        return options, more


def command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], object],
    *,
    help_: str = "",
    description: str = "",
    more: str = "",
    json: str = "",
) -> argparse.ArgumentParser:
    """Add a command. Its help and `more` describe it, unless it has a `description`. `json`: what --json does."""
    help_ = help_ or HELPS[name]
    described = description or f"{help_[0].upper()}{help_[1:]}. {more}".rstrip()
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_, description=described)
    if json:
        parser.add_argument("--json", action="store_true", help=json)
    parser.set_defaults(run=run, refuse=parser.error)
    return parser


class Refused(argparse.Action):
    """An option of other commands. The error for it says what to use instead."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, instead: str) -> None:
        super().__init__(option_strings, dest, nargs="?", help=argparse.SUPPRESS)
        self._instead = instead

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        parser.error(f"argument {self.option_strings[0]}: {self._instead}")


class Once(argparse.Action):
    """An option of which a second one would replace the first."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, *_: object) -> None:
        if getattr(namespace, self.dest) is not self.default:
            parser.error(f"argument {self.option_strings[0]}: it may be there once; run the command for each")
        setattr(namespace, self.dest, value)


def add_prefix(parser: argparse.ArgumentParser, help_: str, **more: Any) -> None:
    parser.add_argument("--prefix", action=Once, type=prefix, metavar="P", help=help_, **more)


def prefix(text: str) -> str:
    if text.endswith("*"):
        raise argparse.ArgumentTypeError("leave the '*' out, as a prefix is the beginning of names")
    return text


def filled(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty: perhaps a variable is not set")
    return text


def folder(text: str) -> str:
    if "://" in filled(text) or text.startswith("~"):
        raise argparse.ArgumentTypeError(f"must be the path of a folder, is {text!r}")
    if Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is a file: name its folder, {str(Path(text).parent)!r}")
    return text


def integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):  # int() also takes 1_000
        raise argparse.ArgumentTypeError(f"must be a whole number, is {text!r}")
    return int(text)


def whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        with contextlib.suppress(argparse.ArgumentTypeError):
            if least <= integer(text) <= most:
                return integer(text)
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}, is {text!r}")

    return read


def duration(text: str) -> str:
    """A number of hours, days or years, as it is written."""
    try:
        duration_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def days(text: str) -> int:
    """A number of days or years, in days."""
    try:
        return days_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; is {text!r}") from None


def seconds_from(least: int) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number < math.inf:
            raise argparse.ArgumentTypeError(f"must be a number of seconds, {least} or more, is {text!r}")
        return number

    return read


seconds = seconds_from(0)


def instant(text: str) -> int:
    """Milliseconds since 1970."""
    try:
        return millis_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

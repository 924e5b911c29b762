"""Parses the command line: its numbers, its width, and how wrong usage is reported."""

import argparse
import contextlib
import math
import shutil
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from shared.config.settings import duration_of
from shared.model.buckets import millis_of

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
            self.error(f"unrecognized arguments: {' '.join(more)}")
        return options, more


class Refused(argparse.Action):
    """An option of other commands. The error for it says what to use instead."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, instead: str) -> None:
        super().__init__(option_strings, dest, nargs="?", help=argparse.SUPPRESS)
        self._instead = instead

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        parser.error(f"argument {self.option_strings[0]}: {self._instead}")


def whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            if least <= int(text) <= most:
                return int(text)
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}, is {text!r}")

    return read


def duration(text: str) -> str:
    """A number of hours, days or years, as it is written."""
    try:
        duration_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def sentence(help_: str) -> str:
    """The help of a command as the first sentence of its description."""
    return f"{help_[0].upper()}{help_[1:]}."


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, 0 or more, is {text!r}")
    return number


def instant(text: str) -> int:
    """Milliseconds since 1970."""
    try:
        return millis_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

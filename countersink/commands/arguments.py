"""Parses numbers on the command line."""

import argparse
import contextlib
import math
from collections.abc import Callable


def whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            if least <= int(text) <= most:
                return int(text)
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}, is {text!r}")

    return read


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

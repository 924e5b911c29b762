"""Writes to standard output, and copes with a reader that has gone."""

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any


def say(line: str) -> None:
    """Print a line of a long-running process. A closed standard output is no error: the process goes on."""
    try:
        tell(line)
        flush()
    except OSError:
        give_up()


def tell(line: str) -> None:
    """Print a result. Raises `BrokenPipeError` if the reader has closed the pipe."""
    print(line)  # noqa: T201 (the result)


def note(line: str) -> None:
    """Print a note on standard error, beside the result."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)  # noqa: T201 (as above)


def json_of(value: Mapping[str, Any]) -> str:
    """The value on one line."""
    return json.dumps(value, ensure_ascii=False)


def flush() -> None:
    """Flush now, while an error can still be reported; at the interpreter's exit it can't."""
    if sys.stdout is not None:  # None if the process was started with it closed
        sys.stdout.flush()


def give_up() -> None:
    """Discard what is still in the buffer."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def show_anything() -> None:
    """Show characters that the terminal can't print by their numbers: names may hold any character."""
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # a replaced stdout may lack it

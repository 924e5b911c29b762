"""Standard output: what is said there, and what becomes of it when nobody listens any more."""

import contextlib
import os
import sys


def say(line: str) -> None:
    """For a process that goes on: whoever started it may have closed the other end."""
    try:
        tell(line)
        flush()
    except OSError:
        give_up()


def tell(line: str) -> None:
    """For a command whose output is its purpose; `BrokenPipeError` when the reader has seen enough."""
    print(line)  # noqa: T201 (what was asked for)


def flush() -> None:
    """While an error can still be handled: at the interpreter's own end it can't."""
    if sys.stdout is not None:  # none, where the process was started with it closed
        sys.stdout.flush()


def give_up() -> None:
    """What is still in the buffer goes nowhere, quietly."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def show_anything() -> None:
    """Names hold any character; a terminal that can't show one gets its number."""
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # not there, if replaced

"""What the service accepts as a name, a delta or an id. The client checks it first: one bad item may spoil a batch.

The service has the same rules (`shared/model`), and a test compares them.
"""

import re
from typing import Final

MAX_NAME_BYTES: Final = 400
MAX_ID_BYTES: Final = 1_000
MAX_DELTA: Final = 2**53 - 1

_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_JOB: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def flaw_of_name(name: object) -> str | None:
    """Why this can't be a counter name; None if it can."""
    if flaw := flaw_of_size(name, MAX_NAME_BYTES):
        return flaw
    text = str(name)
    if not text:
        return "must not be empty"
    if _CONTROLS.search(text):
        return "must not hold control characters"
    if text in {".", ".."} or (len(text) >= 4 and text.startswith("__") and text.endswith("__")):  # noqa: PLR2004 (____)
        return "must not be '.', '..' or of the form '__…__': these are reserved"
    return None


def flaw_of_delta(delta: object) -> str | None:
    """Why this can't be the delta of one increment; None if it can."""
    if type(delta) is not int:
        return "must be an integer"
    if not -MAX_DELTA <= delta <= MAX_DELTA:
        return f"must be between -{MAX_DELTA} and {MAX_DELTA}"
    return None


def flaw_of_id(value: object) -> str | None:
    """Why this can't be the id of an increment or a batch; None if it can."""
    return flaw_of_size(value, MAX_ID_BYTES, least=1)


def flaw_of_prefix(value: object) -> str | None:
    """Why this can't be a prefix; None if it can. The empty prefix means all counters."""
    return flaw_of_size(value, MAX_NAME_BYTES)


def flaw_of_job(value: object) -> str | None:
    """Why this can't be a job's id; None if it can."""
    if type(value) is not str:
        return "must be a string"
    if not _JOB.fullmatch(value):
        return "must be 1 to 100 letters, digits, '-', '_' or '.', the first a letter or a digit"
    return None


def flaw_of_size(value: object, most: int, least: int = 0) -> str | None:
    """Why this is no text of `least` to `most` bytes; None if it is."""
    if type(value) is not str:
        return "must be a string"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "must be valid Unicode: it holds a lone surrogate"
    if least <= size <= most:
        return None
    return f"must be {f'{least} to' if least else 'at most'} {most} bytes of UTF-8, is {size}"

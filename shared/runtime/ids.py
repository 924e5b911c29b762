"""Makes ids: safe in a URL, without dots."""

import os
import time
from collections.abc import Callable
from hashlib import sha256
from itertools import count
from typing import Final

_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LIFE: Final = 12
_PART: Final = 7
"""Digits of 5 bits: of a process, and of each of the two other parts. Ids have as many as those of `mint`."""


def mint() -> str:
    """A unique id. Ids sort by time: 48 bits of milliseconds come before 80 random ones."""
    number = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10))
    return _written(number, 26)


def envelope_ids() -> Callable[[], str]:
    """Makes the ids of a process's envelopes. They begin alike and rise, so the store can look up many as one range.
    Their end is random: nobody can guess one.
    """
    life, numbers = _written(int.from_bytes(os.urandom(8)), _LIFE), count()
    return lambda: f"{life}{_written(next(numbers), _PART)}{_written(int.from_bytes(os.urandom(5)), _PART)}"


def of_key(idempotency_key: str) -> str:
    """The id of a batch with this Idempotency-Key. No minted id looks like it."""
    return "key-" + sha256(idempotency_key.encode()).hexdigest()


def _written(number: int, digits: int) -> str:
    return "".join([_DIGITS[number >> shift & 31] for shift in range(5 * digits - 5, -5, -5)])

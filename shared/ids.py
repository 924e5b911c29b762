"""Mints the ids of envelopes: unique, in order of time, safe in a URL."""

import os
import time

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def mint() -> str:
    """26 characters: 48 bits of milliseconds, 80 random ones."""
    number = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10))
    return "".join([_DIGITS[number >> shift & 31] for shift in range(125, -5, -5)])

"""Makes the ids of envelopes: safe in a URL, without dots."""

import os
import time
from hashlib import sha256

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def mint() -> str:
    """Unique and in order of time: 48 bits of milliseconds, 80 random ones."""
    number = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10))
    return "".join([_DIGITS[number >> shift & 31] for shift in range(125, -5, -5)])


def of_key(idempotency_key: str) -> str:
    """The id of the batch that a client named so; no minted id looks like it."""
    return "key-" + sha256(idempotency_key.encode()).hexdigest()

"""Makes the ids of envelopes: safe in a URL, without dots."""

import os
import time
from hashlib import sha256

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def mint() -> str:
    """A unique id. Ids sort by time: 48 bits of milliseconds come before 80 random ones."""
    number = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10))
    return "".join([_DIGITS[number >> shift & 31] for shift in range(125, -5, -5)])


def of_key(idempotency_key: str) -> str:
    """The id of a batch with this Idempotency-Key. No minted id looks like it."""
    return "key-" + sha256(idempotency_key.encode()).hexdigest()

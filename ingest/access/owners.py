"""Owns how ids that clients choose are kept apart: keys of different owners never share an id. Pure."""

from hashlib import sha256
from typing import Final

OWNED: Final = "\x1eowned:"
"""How an id begins that stands for one of an owner. An id that a client begins like this is treated as an owned one."""


def owned(owner: str, id_: str) -> str:
    """The id that is stored for a client's id. Without an owner it is the client's own."""
    if not owner and not id_.startswith(OWNED):
        return id_
    return OWNED + sha256(f"{len(owner)}:{owner}{id_}".encode()).hexdigest()

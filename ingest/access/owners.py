"""Keeps the ids that clients choose apart: keys of different owners never share an id. Pure."""

from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Final

from shared.runtime.ids import of_key

OWNED: Final = "\x1eowned:"
"""How an id begins that stands for one of an owner. An id that a client begins like this is treated as an owned one."""


OWNED_RECEIPT: Final = "own-"
"""How the receipts of owners begin, and the ids of batches with an owner's Idempotency-Key."""


def owned(owner: str, id_: str) -> str:
    """The id that is stored for a client's id. Without an owner it is the client's own."""
    if not owner and not id_.startswith(OWNED):
        return id_
    return OWNED + sha256(f"{len(owner)}:{owner}{id_}".encode()).hexdigest()


def batch_id(owner: str, idempotency_key: str) -> str:
    """The id of a batch with this Idempotency-Key. One that is an owner's begins differently."""
    if not owner:
        return of_key(owned(owner, idempotency_key))
    return f"{OWNED_RECEIPT}key-" + sha256(owned(owner, idempotency_key).encode()).hexdigest()


def event_id(owner: str, source: str, id_: str) -> str:
    """The id of the envelope of a CloudEvent: 128 bits of a hash, as a receipt names many of them."""
    text = f"{len(owner)}:{owner}{len(source)}:{source}{id_}"
    return f"{OWNED_RECEIPT if owner else ''}ce-" + sha256(text.encode()).hexdigest()[:32]


def signed(secret: str, owner: str, ids: str) -> str:
    """The receipt that an owner gets for the envelopes with these ids."""
    signing = _signing(secret, owner).copy()
    signing.update(ids.encode())
    return f"{OWNED_RECEIPT}{signing.hexdigest()}.{ids}"


@lru_cache(maxsize=1_024)
def _signing(secret: str, owner: str) -> blake2b:
    """Made once for each owner, as that takes longer than to copy it."""
    return blake2b(digest_size=16, key=sha256(f"{len(secret)}:{secret}{owner}".encode()).digest())

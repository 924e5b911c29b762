"""Receipt keys, and how long receipts live."""

import re
from hashlib import sha256
from typing import Final

from shared.model.times import Millis

HOUR: Final = Millis(3_600_000)
DAY: Final = Millis(24 * HOUR)
DAY_SECONDS: Final = DAY // 1_000
CLIENT_IDS_REMEMBERED: Final = Millis(8 * DAY)
"""A client's id counts once for at least this long after its first use."""
_KEY_OF_ID: Final = re.compile("i[0-9a-f]{64}")


def key_of_envelope(envelope_id: str) -> str:
    return "e" + sha256(envelope_id.encode()).hexdigest()


def key_of_part(envelope_id: str, number: int) -> str:
    """The key of a part of a divided envelope. The prefix keeps it apart from envelope ids that look like a part's."""
    return "p" + sha256(f"{envelope_id}/{number}".encode()).hexdigest()


def key_of_second_use(key: str, attempt: str) -> str:
    """The key of a second use of a client's id. It counts as deduplicated once, however often it is delivered."""
    return "s" + sha256(f"{key}/{attempt}".encode()).hexdigest()


def key_of_increment(counter: str, client_id: str) -> str:
    """The key of an increment with an id. The counter's length keeps ('a', 'bc') and ('ab', 'c') apart."""
    return "i" + sha256(f"{len(counter)}:{counter}{client_id}".encode()).hexdigest()


def half_of_id(key: str) -> bytes | None:
    """Half of the hash in the key of an increment, 16 bytes; None if the key is of something else."""
    return bytes.fromhex(key[1:33]) if _KEY_OF_ID.fullmatch(key) else None


def key_of_half(half: bytes) -> str:
    """What is known of a key if only `half_of_id` was kept."""
    return "i" + half.hex()


def key_of_set(counter: str, kind: str, idempotency_key: str) -> str:
    """The key of a set, reset or delete. The kind is part of it: the same idempotency key may be used for each."""
    return "c" + sha256(f"{kind}:{len(counter)}:{counter}{idempotency_key}".encode()).hexdigest()


def key_of_import(commit_id: str) -> str:
    """The key of an import's commit. Marks tell what was imported; the receipt is for audits."""
    return "m" + sha256(commit_id.encode()).hexdigest()


def key_of_drop(identity: str) -> str:
    """The key of a drop of dead letters, which stands for no increments."""
    return "d" + sha256(identity.encode()).hexdigest()


def key_of_visit(job: str, counter: str) -> str:
    """The key of a job's change to a counter. A job's id has no colon."""
    return "j" + sha256(f"{job}:{counter}".encode()).hexdigest()


def key_of_compaction(identity: str) -> str:
    """The key of a compaction, which stands for no increments."""
    return "k" + sha256(identity.encode()).hexdigest()


def lifetime(retention: Millis, *, of_client: bool) -> Millis:
    """How long a receipt lives: longer than the broker can deliver its message again.

    The receipt of a client's id lives 8 days longer: a retry that is accepted on the last day is flushed later.
    """
    return Millis(retention + DAY + (CLIENT_IDS_REMEMBERED if of_client else 0))

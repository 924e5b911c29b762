"""Receipt keys and how long a receipt must live. Times are in milliseconds."""

from hashlib import sha256
from typing import Final

HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR
DAY_SECONDS: Final = DAY // 1_000
CLIENT_IDS_REMEMBERED: Final = 8 * DAY
"""A client's id counts once for at least so long after its first use."""


def key_of_envelope(envelope_id: str) -> str:
    return "e" + sha256(envelope_id.encode()).hexdigest()


def key_of_part(envelope_id: str, number: int) -> str:
    """Of a divided envelope. With a prefix of its own: an envelope may be called as if it were a part."""
    return "p" + sha256(f"{envelope_id}/{number}".encode()).hexdigest()


def key_of_second_use(key: str, attempt: str) -> str:
    """Of what came under an id that was used before. It counts as deduplicated once, however often it is delivered."""
    return "s" + sha256(f"{key}/{attempt}".encode()).hexdigest()


def key_of_increment(counter: str, client_id: str) -> str:
    """The counter's length keeps ('a', 'bc') and ('ab', 'c') apart."""
    return "i" + sha256(f"{len(counter)}:{counter}{client_id}".encode()).hexdigest()


def key_of_set(counter: str, kind: str, idempotency_key: str) -> str:
    """Of a set, a reset or a delete of the counter: a key that is used for two of them names two things."""
    return "c" + sha256(f"{kind}:{len(counter)}:{counter}{idempotency_key}".encode()).hexdigest()


def key_of_import(commit_id: str) -> str:
    """Of a commit that adds what another application has counted. Marks tell what was added; it is for the accounts."""
    return "m" + sha256(commit_id.encode()).hexdigest()


def key_of_visit(job: str, counter: str) -> str:
    """Of what a job does to a counter. The id of a job has no colon."""
    return "j" + sha256(f"{job}:{counter}".encode()).hexdigest()


def key_of_compaction(identity: str) -> str:
    """It stands for no increments."""
    return "k" + sha256(identity.encode()).hexdigest()


def lifetime(retention: int, *, of_client: bool) -> int:
    """Milliseconds a receipt lives: longer than the broker can deliver what it stands for again.

    A client's id lives 8 days longer: a retry accepted on its last day is flushed after it.
    """
    return retention + DAY + (CLIENT_IDS_REMEMBERED if of_client else 0)

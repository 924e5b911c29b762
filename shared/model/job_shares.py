"""How owners of keys share jobs: how many may run, and how many exports are kept. Pure.

A job's id as it is stored begins with its owner (`owner_of`). Jobs without an owner may take the whole room, and
without keys no job has one.
"""

from collections.abc import Sequence
from typing import Final

from shared.model.errors import ShareError

MOST_RUNNING: Final = 10
"""Jobs of one owner that may run at once."""
PARTS: Final = 4
"""An owner may have one of so many parts of the room for exports."""
RETRY: Final = 10.0
"""Seconds until it is worth to look again whether a job has ended."""
_HOUR: Final = 3_600


def owner_of(job: str) -> str:
    """The owner in a stored id of a job; empty if it has none. Neither an owner nor an id has a slash."""
    return job.rpartition("/")[0]


def sharers_of(job: str) -> Sequence[str]:
    """Whose room the job takes: everybody's, as an empty string, and its owner's."""
    owner = owner_of(job)
    return ("", owner) if owner else ("",)


def bounds_of(owner: str) -> tuple[str, str]:
    """The stored ids of an owner's jobs, or of all jobs: from the first string on, and before the second one."""
    return (f"{owner}/", f"{owner}0") if owner else ("", "~")


def share_of(owner: str, most: int) -> int:
    """How much of a room of `most` an owner may have."""
    return max(most // PARTS, 1) if owner else most


def check_running(owner: str, running: int) -> None:
    """Raise `ShareError` if an owner with so many running jobs may not start another one."""
    if owner and running >= MOST_RUNNING:
        raise ShareError(
            f"{running} jobs of the owner {owner!r} are running, and {MOST_RUNNING} may run at once: wait until one has"
            " ended, or stop one (DELETE /v1/jobs/{id})",
            RETRY,
        )


def check_exports(owner: str, setting: str, most: int, kept: int, *, left: float, unit: str = "exports") -> None:
    """Raise `ShareError` if there is no room for another export. The setting allows `most`, and `kept` are kept of the
    owner, or of all. The first of these expires in `left` seconds.
    """
    share = share_of(owner, most)
    if kept >= share:
        allows = f"COUNTERSINK_{setting} allows {most} {unit}"
        if owner:
            allows += f", the owner {owner!r} may have {share} of them"
        raise ShareError(
            f"{allows}, and {kept} are kept: delete exports that you have read (DELETE /v1/jobs/{{id}}), or"
            f" wait until the oldest one expires, in {left / _HOUR:.1f} hours",
            max(left, 1.0),
        )

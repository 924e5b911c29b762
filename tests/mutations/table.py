"""All mutations, by name."""

from tests.mutations import (  # noqa: F401 (each enters its own)
    by_time,
    client,
    commits,
    connections,
    feed,
    files,
    fleet,
    importing,
    jobs,
    letters,
    messages,
    moving,
    overlay_in_redis,
    publishing,
    reading,
    receipts,
    senders,
    services,
    sets,
    shards,
)
from tests.mutations.mutation import MUTATIONS, Mutation


def by_name() -> dict[str, Mutation]:
    return {one.name: one for one in MUTATIONS}

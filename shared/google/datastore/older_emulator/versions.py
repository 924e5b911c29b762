"""Times of entities and of looks. The older emulator tells none: there the versions of entities stand for them."""

from typing import Any

from shared.google.datastore.time import micros
from shared.model.times import BEGINNING, Instant


def written_at(result: Any) -> Instant:
    """When an entity was last written (micros); on the older emulator, its version."""
    return micros(result.update_time) if result.HasField("update_time") else Instant(result.version)


def highest(response: Any) -> Instant:
    """The highest version in the response to a Lookup. It stands for the time of the look."""
    return Instant(max((one.version for some in (response.found, response.missing) for one in some), default=BEGINNING))

"""Builds the mutations of commits as raw protobuf. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shared.google.datastore.keys import Key, name_of

_CONFLICT_FAILS: Final = 3
"""The conflict strategy FAIL. Without it, a mutation with a `base_version` overwrites silently."""


def only_over(version: int, mutation: Any) -> None:
    """Make the commit fail if the entity does not have this version any more."""
    mutation.base_version = version
    mutation.conflict_resolution_strategy = _CONFLICT_FAILS


def write(request: Any, entity: Any, version: int) -> Any:
    """Write an entity over this version, or insert it if that is 0. Returns the entity in the request, to be changed.
    The commit fails if it has another version by then.
    """
    mutation = request.mutations.add()
    if not version:
        mutation.insert.CopyFrom(entity)
        return mutation.insert
    mutation.update.CopyFrom(entity)
    only_over(version, mutation)
    return mutation.update


def rewrite(request: Any, seen: Any) -> Any:
    """Write an entity over the version in which it was seen. Returns it, to be changed."""
    return write(request, seen.entity, seen.version)


def delete(request: Any, seen: Any) -> None:
    """Delete an entity in the version in which it was seen."""
    mutation = request.mutations.add()
    mutation.delete.CopyFrom(seen.entity.key)
    only_over(seen.version, mutation)


def transform(mutation: Any, key: Key, name: str, *, update: bool) -> Any:
    """Let the server change one property of an entity, which it makes if that is missing and this is no `update`.
    Returns the transform, to be filled in.
    """
    (mutation.update if update else mutation.upsert).key.CopyFrom(key)
    mutation.property_mask.SetInParent()  # an empty mask; without a mask the entity would be replaced first
    made = mutation.property_transforms.add()
    made.property = name
    return made


def by_name(found: Sequence[Any]) -> Mapping[tuple[str, str], Any]:
    """What a look found, by kind and name."""
    return {name_of(one.entity.key): one for one in found}

"""Mutations of the wire format."""

from tests.mutations.mutation import calling, mutation
from tests.mutations.places import NEWER

mutation("a message of another version is taken for one of another publisher", "shared.wire.codec.decode", NEWER)(
    calling(OURS="of nobody", SOURCE="of nobody")
)

"""Translates the errors of Datastore to Countersink's own."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc
from google.auth.exceptions import GoogleAuthError

from shared.model.errors import AlreadyAppliedError, ContendedError, CountersinkError, RefusedError, TransientError

_MEANS: Final = {  # except for the last two: until somebody changes the permissions, the quota, or the database
    grpc.StatusCode.PERMISSION_DENIED: "this account may not use the database: grant it the role roles/datastore.user",
    grpc.StatusCode.UNAUTHENTICATED: "no valid credentials",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "a quota is used up",
    grpc.StatusCode.NOT_FOUND: "the project or the database does not exist",
    grpc.StatusCode.FAILED_PRECONDITION: "the database or an index of it is not ready for this",
    grpc.StatusCode.UNIMPLEMENTED: "this server does not know the request",
    grpc.StatusCode.DEADLINE_EXCEEDED: "the server did not answer in time, so try again later",
    grpc.StatusCode.UNAVAILABLE: "the server can't be reached, so try again later",
}
_INVALID: Final = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE}
_FUTURE: Final = re.compile(r"read_time.*future", re.IGNORECASE)
_ENDED: Final = re.compile(r"transaction.*(closed|expired|invalid|no longer)", re.IGNORECASE)
_TOO_LARGE: Final = re.compile(r"message.*(larger|exceeds)", re.IGNORECASE)


class TooEarlyError(TransientError):
    """The requested instant is still in the future of the server's clock."""


class MissingError(CountersinkError):
    """An entity to be updated, or the whole database, is missing; nothing was applied. Stays in the adapter."""


def translate(
    error: grpc.aio.AioRpcError, *, commit: bool, updates: bool = False, versions: bool = False
) -> CountersinkError:
    """`commit`: only commits are ever refused for good. `updates`, `versions`: see `DatastoreClient.commit`."""
    code, details = error.code(), error.details() or ""
    said = f"Datastore: {code.name}: {details}"
    if commit:
        if code is grpc.StatusCode.ALREADY_EXISTS:
            return AlreadyAppliedError(f"a receipt of this commit exists: {details}")
        if code is grpc.StatusCode.NOT_FOUND and updates:
            return MissingError(said)
        if code is grpc.StatusCode.FAILED_PRECONDITION and versions:
            return ContendedError(said)
        if code in _INVALID:
            return TransientError(said) if _ENDED.search(details) else RefusedError(said)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE.search(details):
            return RefusedError(said)
    elif code in _INVALID and _FUTURE.search(details):
        return TooEarlyError(said)
    if code is grpc.StatusCode.ABORTED:
        return ContendedError(said)
    if code in _MEANS:
        return TransientError(f"{_MEANS[code]}: {said}")
    return TransientError(said)


@contextmanager
def translated(*, commit: bool = False, updates: bool = False, versions: bool = False) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise translate(error, commit=commit, updates=updates, versions=versions) from error
    except GoogleAuthError as error:
        raise TransientError(f"no valid credentials for Datastore: {error}") from error
    except grpc.aio.UsageError as error:
        raise TransientError(f"the channel is closed: {error}") from error

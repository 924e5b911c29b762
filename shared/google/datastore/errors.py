"""What the errors of Datastore mean to us."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc
from google.auth.exceptions import GoogleAuthError

from shared.model.errors import AlreadyAppliedError, ContendedError, CountersinkError, RefusedError, TransientError

_CLOSED: Final = {
    grpc.StatusCode.PERMISSION_DENIED: "this account may not use the database (role roles/datastore.user)",
    grpc.StatusCode.UNAUTHENTICATED: "no valid credentials",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "a quota is used up",
    grpc.StatusCode.NOT_FOUND: "the project or the database does not exist",
    grpc.StatusCode.FAILED_PRECONDITION: "the database or an index of it is not ready for this",
    grpc.StatusCode.UNIMPLEMENTED: "this server does not know the request",
}
_INVALID: Final = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE}
_FUTURE: Final = re.compile(r"read_time.*future", re.IGNORECASE)
_ENDED: Final = re.compile(r"transaction.*(closed|expired|invalid|no longer)", re.IGNORECASE)
_TOO_LARGE: Final = re.compile(r"message.*(larger|exceeds)", re.IGNORECASE)


class StoreClosedError(TransientError):
    """Datastore lets nobody in until somebody mends it: permission, quota, or a database that does not exist."""


class TooEarlyError(TransientError):
    """The server's clock does not show that instant yet."""


class MissingError(CountersinkError):
    """An entity that was to be updated does not exist (or the database); nothing was applied. Stays inside."""


def translate(
    error: grpc.aio.AioRpcError, *, commit: bool, updates: bool = False, versions: bool = False
) -> CountersinkError:
    """`commit`: only those are ever refused for good. `updates`, `versions`: it holds some that may not match."""
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
    if code in _CLOSED:
        return StoreClosedError(f"{_CLOSED[code]}: {said}")
    return TransientError(said)


@contextmanager
def translated(*, commit: bool = False, updates: bool = False, versions: bool = False) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise translate(error, commit=commit, updates=updates, versions=versions) from error
    except GoogleAuthError as error:
        raise StoreClosedError(f"no valid credentials for Datastore: {error}") from error
    except grpc.aio.UsageError as error:
        raise TransientError(f"the channel is closed: {error}") from error

"""The Python client."""

from typing import TYPE_CHECKING

from countersink.client.answers import (
    Accepted,
    Changed,
    Counter,
    JobStatus,
    Rejected,
    RejectedError,
    RequestError,
    UnavailableError,
)
from shared.model.words import Increment

if TYPE_CHECKING:
    from countersink.client.client import Client as Client

__all__ = [
    "Accepted",
    "Changed",
    "Client",
    "Counter",
    "Increment",
    "JobStatus",
    "Rejected",
    "RejectedError",
    "RequestError",
    "UnavailableError",
]


def __getattr__(name: str) -> object:
    """Import the client only when it is used: it needs aiohttp, which is slow to import."""
    if name == "Client":
        from countersink.client.client import Client  # noqa: PLC0415 (see above)

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The Python client. Names are loaded when they are asked for: only some need aiohttp."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from countersink.client.client import (
        Accepted,
        Changed,
        Client,
        Counter,
        Increment,
        Job,
        Rejected,
        RejectedError,
        RequestError,
        UnavailableError,
    )

__all__ = [
    "Accepted",
    "Changed",
    "Client",
    "Counter",
    "Increment",
    "Job",
    "Rejected",
    "RejectedError",
    "RequestError",
    "UnavailableError",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("countersink.client.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

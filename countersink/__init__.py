"""The Python client of Countersink. It needs nothing but the standard library."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from countersink.answers import Accepted as Accepted
    from countersink.answers import Changed as Changed
    from countersink.answers import Counter as Counter
    from countersink.answers import JobStatus as JobStatus
    from countersink.answers import Page as Page
    from countersink.answers import Point as Point
    from countersink.answers import Rejected as Rejected
    from countersink.answers import RejectedError as RejectedError
    from countersink.answers import RequestError as RequestError
    from countersink.answers import Series as Series
    from countersink.answers import UnavailableError as UnavailableError
    from countersink.async_client import AsyncClient as AsyncClient
    from countersink.calls import Increment as Increment
    from countersink.client import Client as Client

__version__ = "0.2.0.dev0"
__all__ = [
    "Accepted",
    "AsyncClient",
    "Changed",
    "Client",
    "Counter",
    "Increment",
    "JobStatus",
    "Page",
    "Point",
    "Rejected",
    "RejectedError",
    "RequestError",
    "Series",
    "UnavailableError",
    "__version__",
]


def __dir__() -> list[str]:
    """All names, also those that were not imported yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Import a name only when it is used: the command line reads the version, and should not wait for the client."""
    from importlib import import_module  # noqa: PLC0415 (see above)

    if name == "__all__" or name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = {"Client": "client", "AsyncClient": "async_client", "Increment": "calls"}.get(name, "answers")
    return getattr(import_module(f"{__name__}.{module}"), name)

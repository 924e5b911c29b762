"""The front door of Countersink: the command line and the client."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from countersink.client import Client as Client

__version__ = "0.1.0"
__all__ = ["Client", "__version__"]


def __getattr__(name: str) -> object:
    """Import the client only when it is used: it needs aiohttp, which is slow to import."""
    if name == "Client":
        from countersink.client import Client  # noqa: PLC0415 (see above)

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

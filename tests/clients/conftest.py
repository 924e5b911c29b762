"""The clients of all languages, built."""

from tests.clients.drivers import built

__all__ = ["built"]

"""Opens what `countersink import` reads outside of Datastore."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shared.model.imports import Source
from shared.moving.export_file import ExportSource


@asynccontextmanager
async def source_of(variant: str, url: str) -> AsyncIterator[Source]:  # noqa: ARG001 (there is one)
    """Enter it inside a running event loop. `SettingsError` says which argument cannot be used."""
    yield ExportSource(Path(url))

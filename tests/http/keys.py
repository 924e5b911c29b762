"""Keys files for tests, and the keys in them."""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from ingest.access.keys import SCOPES, make, written
from tests.http.service import Service, running

SHOP: Final = "https://shop.example"
PAST: Final = "2020-01-01T00:00:00Z"
FUTURE: Final = (datetime.now(UTC) + timedelta(days=1)).isoformat()
ALL: Final = [*SCOPES]


def keys_file(folder: Path, **entries: dict[str, Any]) -> tuple[Path, dict[str, str]]:
    """A file with these keys; and the text of each, by its id."""
    made = {id_: make(**{"id": id_, "scopes": ALL} | entry) for id_, entry in entries.items()}
    file = folder / "keys.json"
    file.write_bytes(written([key for key, _ in made.values()]))
    return file, {id_: text for id_, (_, text) in made.items()}


@contextlib.asynccontextmanager
async def guarded(folder: Path, **entries: dict[str, Any]) -> AsyncIterator[tuple[Service, dict[str, str]]]:
    """A service with these keys; and the text of each, by its id."""
    file, texts = keys_file(folder, **entries)
    async with running(folder, keys_file=str(file)) as service:
        yield service, texts


def authorization(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def bearer(text: str) -> bytes:
    return f"Authorization: Bearer {text}\r\n".encode()

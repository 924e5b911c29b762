"""Keys files for tests, the keys in them, and requests that use them."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from ingest.access.keys import SCOPES, make, parse, written
from tests.http.answer import Answer
from tests.http.service import Service, running
from tests.world.manual_clock import ManualClock

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


def authorization(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def bearer(text: str) -> bytes:
    return f"Authorization: Bearer {text}\r\n".encode()


class Guarded(NamedTuple):
    """A service with keys; and the text of each, by its id."""

    service: Service
    keys: dict[str, str]

    async def ask(
        self, who: str, method: str, target: str, body: Any = None, *, client: int = 0, **headers: str
    ) -> Answer:
        """A body that is no bytes is sent as JSON. With a publishable key, a POST comes from a page of its site."""
        named = {name.replace("_", "-"): value for name, value in headers.items()} | authorization(self.keys[who])
        if self.keys[who].startswith("cpk") and method == "POST":
            named["Origin"] = SHOP
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return await self.service.ask(method, target, data, named, client)

    async def post(self, who: str, target: str, body: Any = None, *, client: int = 0, **headers: str) -> Answer:
        return await self.ask(who, "POST", target, body, client=client, **headers)

    async def totals(self) -> dict[str, int]:
        """As the key `all` sees them."""
        found = (await self.ask("all", "GET", "/v1/counters?max_age=0&limit=1000")).json["counters"]
        return {one["name"]: one["value"] for one in found}


@contextlib.asynccontextmanager
async def guarded(
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    clock: ManualClock | None = None,
    /,
    **entries: dict[str, Any],
) -> AsyncIterator[Guarded]:
    """With these keys and other settings. Rates of keys go by the clock, if there is one."""
    file, texts = keys_file(folder, **entries)
    async with running(folder, keys_file=str(file), **settings or {}) as service:
        if clock is not None:
            ring = service.ingest.door._ring
            assert ring is not None
            ring._clock = clock
            ring._buckets, ring._readers, ring._quotas = {}, {}, {}
            ring._take(parse(file.read_bytes()))
        yield Guarded(service, texts)

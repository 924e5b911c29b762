"""What the generators send, and the bodies of batches."""

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import orjson

NAMES: Final = 1_000
"""Counters in the modes that use many, in load.lua too."""
BATCH: Final = 1_000
COUNTER: Final = "page:views"
_numbers = count()


@dataclass(frozen=True, slots=True)
class Shape:
    """`fixed` sends one request for ever; `ids` gives each body a new id; `names` and `mixed` go through `NAMES`
    counters, whose number is put behind the path, the latter with every other request a GET. `keys`, which only the
    bundled generator knows, gives each request a new Idempotency-Key.
    """

    path: str
    method: str = "POST"
    mode: str = "fixed"
    body: Path | None = None

    def arguments(self) -> list[str]:
        """For either generator."""
        prefix = f"run{next(_numbers)}-"
        return [self.mode, self.method, self.path, str(self.body or ""), prefix]


def counter_path(name: str = COUNTER) -> str:
    return f"/v1/counters/{name}"


def bodies(folder: Path) -> dict[str, Path]:
    """The bodies of the batches of 1,000, as files."""

    def items(names: int) -> bytes:
        return orjson.dumps([{"counter": f"{COUNTER}:{n % names:04}", "delta": 1} for n in range(BATCH)])

    made = {
        "one": b'{"delta":1}',
        "array1": items(1),
        "array100": items(100),
        "array1000": items(BATCH),
        "map1000": orjson.dumps({"counters": {f"{COUNTER}:{n:04}": 1 for n in range(BATCH)}}),
    }
    files = {}
    for name, body in made.items():
        files[name] = folder / f"{name}.json"
        files[name].write_bytes(body)
    return files

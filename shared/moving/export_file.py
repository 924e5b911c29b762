"""Reads the totals in a file that `countersink map --export` wrote."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from shared.model.errors import SettingsError
from shared.model.imports import Foreign

EXAMPLE: Final = '{"name": "page:home", "value": 1234}'


class ExportSource:
    """The totals of an export. The whole file is read and checked before the first is told."""

    def __init__(self, file: Path) -> None:
        self.name = f"export {file.resolve()}"
        """A later export in the same place is the same data, some time later."""
        self._file = file
        self._totals: dict[str, int] | None = None

    async def counter(self, name: str) -> Foreign | None:
        total = self._read().get(name)
        return None if total is None else Foreign(name, total)

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        for name, total in self._read().items():
            if name.startswith(prefix):
                yield Foreign(name, total)

    def _read(self) -> dict[str, int]:
        if self._totals is None:
            self._totals = totals_in(self._file)
        return self._totals


def totals_in(file: Path) -> dict[str, int]:
    """The total of each counter. `SettingsError` if a line has none, or a second one of a counter."""
    totals: dict[str, int] = {}
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                name, total = _total_in(line)
                if name is None:
                    raise SettingsError(
                        f"{file}, line {number}: is no line of an export, so nothing was imported. A line is"
                        f" {EXAMPLE}, and ends with a line break"
                    )
                if name in totals:
                    raise SettingsError(f"{file}, line {number}: {name!r} appears twice, so nothing was imported")
                totals[name] = total
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
    return totals


def _total_in(line: bytes) -> tuple[str | None, int]:
    """The name and the value; None if the line has not both. An export of counts by time has the total, too. What a
    reset or delete has taken away is `before`.
    """
    try:
        found = json.loads(line) if line.endswith(b"\n") else None  # the end of a file may be missing
    except (ValueError, RecursionError):
        found = None
    if type(found) is not dict or type(found.get("name")) is not str:
        return None, 0
    total = found.get("value", found.get("before"))
    return (found["name"], total) if type(total) is int else (None, 0)

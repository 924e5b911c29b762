"""Checks whether the spool is fit, and what is in it. Where no start may make its file, `provision` does."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from shared.config.findings import FAIL, OK, WARN, Finding
from shared.sqlite.setup import SqliteSetup
from shared.sqlite.spool_counts import spooled_in

PART: Final = "spool"


class SpoolSetup(SqliteSetup):
    """Checks one spool file. `flaw`: why nothing can be kept there."""

    def __init__(
        self, path: Path, reserve: int, flaw: str | None, elsewhere: Path | None = None, *, existing: bool = False
    ) -> None:
        super().__init__(path, reserve, elsewhere, part=PART, existing=existing)
        self._flaw = flaw

    async def findings(self) -> AsyncIterator[Finding]:
        if self._flaw is not None:
            yield Finding(WARN, PART, self._flaw)
        async for finding in super().findings():
            yield finding
        if self._path.exists():
            for finding in await asyncio.to_thread(self._rows):
                yield finding

    def _rows(self) -> list[Finding]:
        try:
            rows = spooled_in(self._path)
        except sqlite3.Error as error:
            return [Finding(FAIL, PART, f"{self._path}: its envelopes can't be read ({error})")]
        found = []
        if rows.oldest is not None:
            age = max(time.time() - rows.oldest / 1000, 0.0)
            said = f"{rows.waiting} envelopes wait for Pub/Sub, the oldest for {age:.0f} s: start an ingest with this"
            found.append(Finding(WARN, PART, f"{self._path}: {said} spool; if one runs, its log says why they wait"))
        if rows.buried:
            said = f"{rows.buried} envelopes can never be sent, and are not counted: countersink dlq list shows them"
            found.append(Finding(FAIL, PART, f"{self._path}: {said}"))
        return found or [Finding(OK, PART, f"{self._path}: nothing waits in it")]

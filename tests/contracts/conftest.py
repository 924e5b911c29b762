"""Files that the contracts are tried on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.sqlite.database import Database


@pytest.fixture
async def another(tmp_path: Path, database: Database) -> AsyncIterator[Database]:
    """What another process would open."""
    another = Database(tmp_path / "countersink.db")
    yield another
    await another.close()

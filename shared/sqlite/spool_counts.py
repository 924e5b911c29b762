"""Counts the rows of a spool file: those that wait, and those that can never be sent."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from shared.model.times import BrokerMillis
from shared.sqlite.data_file import uri_of

_COUNT: Final = (
    "SELECT count(*) FILTER (WHERE buried IS NULL), min(published) FILTER (WHERE buried IS NULL), count(buried)"
    " FROM messages"
)


class Spooled(NamedTuple):
    """Numbers of rows."""

    waiting: int
    oldest: BrokerMillis | None
    """When the oldest waiting row was spooled."""
    buried: int
    """Too large to be sent, or too old: `countersink dlq` shows them."""


def spooled_in(path: Path) -> Spooled:
    """The numbers of an existing file, which is not changed."""
    with closing(sqlite3.connect(f"{uri_of(path)}?mode=rw", uri=True, isolation_level=None)) as db:
        return Spooled(*db.execute(_COUNT).fetchone())

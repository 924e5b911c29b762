"""Reads whether a file's store accounts for all that its broker accepted, by the sums that both keep."""

import sqlite3

from shared.model.words import Balance
from shared.sqlite.database import Database, translate

_READ = "SELECT increments, taken - applied - deduplicated - dead - increments FROM broker, store"


class SqliteBalance:
    """Each sum changes in the transaction that changes what it counts, so a crash can't make them disagree."""

    def __init__(self, database: Database) -> None:
        self._path = database.path
        self._reader = database.reader()

    def read(self) -> Balance:
        """The balance now. Short enough for the event loop."""
        try:
            return Balance(*self._reader.execute(_READ).fetchone())
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

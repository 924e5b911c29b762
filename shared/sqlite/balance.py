"""Whether all that the file's broker took is accounted for by its store: one look, by the sums that both keep."""

import sqlite3

from shared.model.words import Balance
from shared.sqlite.database import Database, translate

_READ = "SELECT increments, taken - applied - deduplicated - dead - increments FROM broker, store"


class SqliteBalance:
    """Each sum is kept in the transaction that changes what it is of, so no crash can part them."""

    def __init__(self, database: Database) -> None:
        self._path = database.path
        self._reader = database.reader()

    def read(self) -> Balance:
        """Short enough for the event loop."""
        try:
            return Balance(*self._reader.execute(_READ).fetchone())
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

"""Reads whether a file's store accounts for all that its broker accepted, by the sums that both keep."""

from shared.model.words import Balance
from shared.sqlite.database import Database

_READ = "SELECT increments, taken - applied - deduplicated - dead - increments FROM broker, store"


def balance_of(database: Database) -> Balance:
    """The balance now. Each sum changes in the transaction that changes what it counts, so a crash can't make them
    disagree. Short enough for the event loop.
    """
    with database.reading() as db:
        return Balance(*db.execute(_READ).fetchone())

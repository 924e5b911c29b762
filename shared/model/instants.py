"""How instants are written for people and for other programs: RFC 3339, in UTC, with milliseconds. Pure."""

from datetime import UTC, datetime


def written(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def written_at(seconds: float) -> str:
    """`seconds`: since 1970."""
    return written(datetime.fromtimestamp(seconds, UTC))

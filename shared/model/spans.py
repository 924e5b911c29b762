"""A span: which counts by time an export is asked for, and how it is stored and shown. Pure."""

from typing import NamedTuple

import orjson

from shared.model.instants import written_millis
from shared.model.times import WallMillis


class Span(NamedTuple):
    """Periods of this length that begin in the range, which may be open."""

    by: str
    begin: WallMillis | None = None
    end: WallMillis | None = None


def said(span: Span | None) -> dict[str, str | None]:
    """The fields in JSON: none if there is no span."""
    if span is None:
        return {}
    begin, end = [None if when is None else written_millis(when) for when in span[1:]]
    return {"by": span.by, "from": begin, "to": end}


def text_of(span: Span | None) -> str:
    """As a store keeps it."""
    return "" if span is None else orjson.dumps([*span]).decode()


def span_of(text: str) -> Span | None:
    """Read what `text_of` wrote."""
    return Span(*orjson.loads(text)) if text else None

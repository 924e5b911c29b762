"""How spans, and the instants in them, are read and written."""

import pytest

from shared.model.buckets import datetime_of, millis_of, written_millis, written_second
from shared.model.jobs import Span, span_fields, span_of, span_text


@pytest.mark.parametrize("span", [None, Span("hour"), Span("day", -5), Span("minute", 0, 2**48)])
def test_a_store_reads_what_it_wrote(span: Span | None) -> None:
    assert span_of(span_text(span)) == span


def test_a_span_is_shown_in_utc() -> None:
    assert span_fields(None) == {}
    assert span_fields(Span("hour")) == {"by": "hour", "from": None, "to": None}
    assert span_fields(Span("day", 1_500, -1)) == {
        "by": "day",
        "from": "1970-01-01T00:00:01.500Z",
        "to": "1969-12-31T23:59:59.999Z",
    }


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ("2026-01-31t12:00:00.0001+02:00", "2026-01-31T10:00:00.001Z"),
        ("2026-01-31T12:00:00.000000001Z", "2026-01-31T12:00:00.001Z"),
        ("2026-01-31T12:00:00.123000000Z", "2026-01-31T12:00:00.123Z"),
        (f"2026-01-31T12:00:00.{'0' * 5_000}Z", "2026-01-31T12:00:00.000Z"),
        ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59.9999-23:59", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_an_instant_is_rounded_up_to_a_millisecond_that_can_be_written(text: str, instant: str) -> None:
    when = millis_of(text)
    assert written_millis(when) == instant
    assert millis_of(instant) == when
    assert datetime_of(when).utcoffset() is not None


@pytest.mark.parametrize("text", ["", "2026-01-31", "2026-01-31T12:00:00", "2026-02-30T12:00:00Z", "now"])
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be an instant as in RFC 3339"):
        millis_of(text)


def test_a_period_is_written_without_a_fraction() -> None:
    assert written_second(86_400_000) == b"1970-01-02T00:00:00Z"

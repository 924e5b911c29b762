"""What a `traceparent` says, and how many spans one links to."""

import pytest

from shared.runtime.traces import MOST_LINKS, SpanLinks, Trace, sampled_in, trace_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)])
def test_a_traceparent_names_a_span(flags: str, sampled: bool) -> None:
    found = trace_of(f"00-{TRACE}-{SPAN}-{flags}")
    assert found == Trace(TRACE, SPAN, sampled)
    assert trace_of(found.traceparent()) == found
    assert sampled_in(f"00-{TRACE}-{SPAN}-{flags}") == (found if sampled else None)


@pytest.mark.parametrize(
    "traceparent",
    [
        "", "00", f"01-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-1", f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE}-{SPAN}-01-", f"00-{TRACE}-{SPAN}-01\n", f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-\u06601",
    ],
)  # fmt: skip
def test_a_malformed_one_names_none(traceparent: str) -> None:
    assert trace_of(traceparent) is None
    assert sampled_in(traceparent) is None


def test_links_are_bounded_and_the_rest_is_counted() -> None:
    links = SpanLinks()
    spans = [Trace(TRACE, f"{number:016x}", sampled=True) for number in range(1, MOST_LINKS + 4)]
    for span in (*spans, *spans[:MOST_LINKS]):  # an envelope's parts name the same span again
        links.add(span)
    assert [*links.spans] == spans[:MOST_LINKS]
    assert links.left_out == 3

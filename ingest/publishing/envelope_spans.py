"""Makes the spans of envelopes: which requests each one links to, and when it begins and ends."""

from collections.abc import Iterable

from ingest.publishing.batch import Draft
from shared.runtime.request_context import REQUEST
from shared.runtime.traces import BegunSpan, SpanLinks, Traces


def link_request(*drafts: Draft) -> None:
    """Link these drafts to the request that is being answered, if it has a span."""
    request = REQUEST.get()
    if request is None or request.span is None:
        return
    for draft in drafts:
        draft.links = draft.links or SpanLinks()
        draft.links.add(request.span)


def begun(traces: Traces | None, drafts: Iterable[Draft]) -> list[BegunSpan]:
    """Begin the spans of drafts that are published now: of those that are linked to a request, and no others."""
    spans: list[BegunSpan] = []
    if traces is not None:
        for draft in drafts:
            if draft.links is not None:
                span = traces.envelope(draft.links, draft.increments)
                if span.trace.sampled:
                    draft.traceparent = span.trace.traceparent()
                spans.append(span)
    return spans

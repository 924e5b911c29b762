"""Applies a commit of a flusher, and measures it: for the growth of counters, and as a span."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from flusher.flush.flush_parts import FlushParts
from shared.model.envelope import Envelope
from shared.model.errors import ContendedError
from shared.model.times import Instant
from shared.model.words import Commit
from shared.runtime.traces import SpanLinks, Traces, sampled_in


async def apply(commit: Commit, envelopes: Sequence[Envelope], parts: FlushParts) -> Instant:
    """Apply the commit of these envelopes, and tell `growth` how long it took and whether it collided."""
    store, growth, clock = parts.store, parts.growth, parts.clock
    with _span(parts.traces, envelopes):
        if growth is None:
            return await store.apply(commit)
        begun = clock.monotonic()
        growth.tries()
        try:
            time = await store.apply(commit)
        except ContendedError:
            ended = clock.monotonic()
            growth.contended(commit.adds, ended)
            raise
        ended = clock.monotonic()
        growth.wrote(commit.adds, ended - begun, ended)
        return time


@contextmanager
def _span(traces: Traces | None, envelopes: Sequence[Envelope]) -> Iterator[None]:
    """The code inside it is a span, if one of the envelopes was published in one."""
    links = SpanLinks()
    if traces is not None:
        for envelope in envelopes:
            if (published := sampled_in(envelope.traceparent)) is not None:
                links.add(published)
    if traces is None or not links.spans:
        yield
        return
    span = traces.commit(links, len(envelopes))
    try:
        yield
    except BaseException as error:
        span.end(error)
        raise
    span.end()

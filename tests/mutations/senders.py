"""Mutations of what others send: CloudEvents and StatsD lines."""

from hashlib import sha256
from typing import Final

from shared.runtime.ids import mint
from tests.mutations.mutation import mutation, returning

EVENTS: Final = "tests/http/test_events.py"
LINES: Final = "tests/http/test_statsd.py"


mutation(
    "two events are taken for one if their sources and ids make the same text", "ingest.access.callers.event_id", EVENTS
)(lambda _: lambda owner, source, id_: "ce-" + sha256(f"{owner}{source}{id_}".encode()).hexdigest()[:32])

mutation(
    "an event with other data under a known id is accepted", "ingest.accept.publishing.Publishing.is_other", EVENTS
)(returning(False))

mutation("StatsD lines get another id each time they are sent", "ingest.statsd.statsd.StatsdSender._publish", LINES)(
    lambda publish: lambda self, batch, caller, _: publish(self, batch, caller, mint())
)

mutation("fractions of sampled StatsD lines are forgotten", "ingest.statsd.tally.StatsdTally._keep", LINES)(
    returning(None)
)

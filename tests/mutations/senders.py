"""Mutations of what others send: CloudEvents, what Pub/Sub pushes, tokens of Google and StatsD lines."""

from hashlib import sha256
from typing import Any, Final

from shared.runtime.ids import mint
from tests.mutations.mutation import around, mutation, returning

EVENTS: Final = "tests/http/test_events.py"
LINES: Final = "tests/http/test_statsd.py"
TALLY: Final = "tests/unit/statsd/test_tally.py"


mutation(
    "two events are taken for one if their sources and ids make the same text", "ingest.access.callers.event_id", EVENTS
)(lambda _: lambda owner, source, id_: "ce-" + sha256(f"{owner}{source}{id_}".encode()).hexdigest()[:32])

mutation(
    "an event with other data under a known id is accepted", "ingest.accept.publishing.Publishing.is_other", EVENTS
)(returning(False))

mutation("StatsD lines get another id each time they are sent", "ingest.statsd.statsd.StatsdSender._publish", LINES)(
    lambda publish: lambda self, batch, caller, _: publish(self, batch, caller, mint())
)


@around("fractions of sampled StatsD lines are forgotten", "ingest.statsd.tally.StatsdTally.take", TALLY)
def _(take: Any, self: Any, most_names: int, most_lines: int) -> Any:
    batch = take(self, most_names, most_lines)
    self._rests.clear()
    return batch


mutation(
    "a pushed message that comes again counts again", "ingest.parsing.events._of_push", "tests/http/test_events.py"
)(
    lambda of_push: (
        lambda envelope, event, place=0: of_push(
            envelope | {"message": envelope["message"] | {"messageId": mint()}}, {**event, "id": mint()}, place
        )
    )
)

mutation(
    "each invented token makes Google's certificates be fetched",
    "ingest.access.google_tokens.PAUSE",
    "tests/http/test_google_identity.py",
)(lambda _: 0.0)

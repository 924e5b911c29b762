"""Mutations of the Python client."""

from typing import Any

from tests.mutations.mutation import instead, mutation, replaced, returning

mutation(
    "a batch is sent again under another key", "countersink.sender.Batch.request", "tests/unit/client/test_incr.py"
)(instead(property(lambda self: self._as_request())))

mutation(
    "a batch that may have been accepted is divided",
    "countersink.sender.Batch.divisible",
    "tests/unit/client/test_doubt.py",
)(instead(property(lambda self: len(self) > 1)))

mutation(
    "a flush ends before everything is accepted", "countersink.sender.Sender.flush", "tests/unit/client/test_incr.py"
)(returning(True))

mutation(
    "a message has another identity when it is published again",
    "countersink.pubsub.SOURCE",
    "tests/unit/client/test_pubsub.py",
)(instead(""))


@replaced(
    "what a signal handler counts is lost while an increment enters the list",
    "countersink.client.Client.incr",
    "tests/unit/client/test_interrupted.py::test_a_handler_may_count_and_flush_at_any_step",
)
def _counted_in_two_steps(self: Any, name: str, *_: Any, **__: Any) -> None:
    before = [*self._tally.events]
    self._tally.events = [*before, name]

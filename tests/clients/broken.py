"""Breaks the Python client in one way, and runs its driver: `python broken.py NAME DRIVER OPTIONS`."""

import runpy
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from countersink import client, sender, tally, transport

Batch: Any = sender.Batch
Sender: Any = sender.Sender
Tally: Any = tally.Tally
senders: Any = sender
transports: Any = transport


def new_key_for_each_try() -> None:
    Batch.request = property(Batch.__dict__["request"].func)


def lost_answers_are_forgotten() -> None:
    Sender._failed = lambda self, batch, _: self._outgoing.remove(batch)


def retry_after_is_ignored() -> None:
    transports._retry_after = lambda _: 0.0


def drops_are_not_counted() -> None:
    Tally.drop = lambda *_: None


def memory_is_not_bounded() -> None:
    Tally._has_room = lambda *_: True


def the_end_sends_nothing() -> None:
    senders._running = set()
    senders.begin = lambda _: None


def flush_does_not_wait() -> None:
    Sender.flush = lambda *_: True
    Sender._wake = lambda *_: None  # what it did not wait for is not sent: a pause could hide the fault


def batches_in_doubt_are_divided() -> None:
    Batch.divisible = property(lambda self: len(self) > 1)


def a_refusal_drops_everything() -> None:
    Batch.parts = lambda *_: []


def a_key_is_never_renewed() -> None:
    client_module: Any = client
    there = client_module._transport
    client_module._transport = lambda url, key, *more: there(url, cache(key) if callable(key) else key, *more)


def another_program_is_believed() -> None:
    there = Batch.rejected

    def rejected(self: Any, answer: Any) -> Any:
        return there(self, answer) if b"accepted" in answer.body else (0, "")

    Batch.rejected = rejected


BROKEN: Final[dict[str, tuple[Callable[[], None], str]]] = {
    "another program is believed": (another_program_is_believed, "another program answers for a while"),
    "a key is never renewed": (a_key_is_never_renewed, "a key that is renewed before each attempt"),
    "a refusal drops everything": (a_refusal_drops_everything, "some names are refused and the others count"),
    "batches in doubt are divided": (
        batches_in_doubt_are_divided,
        "what may have been accepted is never sent in other parts",
    ),
    "drops are not counted": (drops_are_not_counted, "what can't be counted is dropped and spoils nothing"),
    "flush does not wait": (flush_does_not_wait, "a client that is killed loses only what was not accepted"),
    "lost answers are forgotten": (lost_answers_are_forgotten, "connections are cut before the request arrives"),
    "memory is not bounded": (memory_is_not_bounded, "memory is bounded while the service is away"),
    "new key for each try": (new_key_for_each_try, "answers are lost"),
    "Retry-After is ignored": (retry_after_is_ignored, "503 with Retry-After"),
    "the end sends nothing": (the_end_sends_nothing, "the end of a program sends what it counted"),
}
"""What is done to the client, and the scenario that has to notice it."""

if __name__ == "__main__":
    _, name, driver, options = sys.argv
    BROKEN[name][0]()
    sys.argv = [driver, options]
    runpy.run_path(driver, run_name="__main__")

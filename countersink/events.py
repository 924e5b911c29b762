"""Reads a stream of counters: connects again when it ends, and goes on where it was."""

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from countersink.answers import Counter, RejectedError, UnavailableError
from countersink.transport import Request, Retries, Transport

SILENCE: Final = 30.0
"""Seconds after which a stream is given up. The service sends something every ten."""

_log: Final = logging.getLogger("countersink.client")


def watch(transport: Transport, path: str, patience: float) -> Iterator[Counter | None]:
    """The counters as they change, for ever. None stands for a sign of life: a new connection, or ten quiet seconds.

    Raises `RejectedError` if the service refuses, `UnavailableError` if it was away for `patience` seconds.
    """
    retries = Retries()
    last = ""
    until = time.monotonic() + patience
    while True:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        try:
            with transport.lines(Request("GET", path, None, headers), SILENCE) as lines:
                for event in _events(lines):
                    retries = Retries()
                    last = event.get("id", last)
                    yield _counter(event)
                    until = time.monotonic() + patience
            raise UnavailableError(f"{transport.shown} has ended the stream")
        except UnavailableError as error:
            _log.info("%s", error)
            delay = retries.delay(error)
            closed = transport.closed.is_set()
            if closed or time.monotonic() + delay > until or transport.closed.wait(delay):
                raise
        except RejectedError:
            raise
        except Exception as error:
            raise RejectedError(f"{transport.shown} does not answer as Countersink does: is the URL right?") from error


def _events(lines: Iterable[bytes]) -> Iterator[Mapping[str, str]]:
    """The fields of each event. Comments and events without data are events, too."""
    fields: dict[str, str] = {}
    for line in lines:
        text = line.decode().rstrip("\r\n")
        if not text:
            yield fields
            fields = {}
            continue
        name, _, value = text.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")


def _counter(event: Mapping[str, str]) -> Counter | None:
    if "data" not in event:
        return None
    data: dict[str, Any] = json.loads(event["data"])
    if event.get("event") == "problem":
        raise RejectedError(str(data["detail"]), status=data["status"], field=data.get("field"))
    return Counter.of(data)

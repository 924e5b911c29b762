"""The command status: asks a running service what it is, and how it does."""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from countersink.answers import RejectedError, RequestError, UnavailableError
from countersink.calls import header_of_caller
from countersink.transport import Answer, Request, Transport
from countersink_server.cli.arguments import Commands, command
from countersink_server.cli.output import flush, json_of, lasting, tell
from countersink_server.cli.target import add_only_service, key_of_caller, naming_the_url, url_of, with_key
from shared.model.buckets import written
from shared.model.errors import CountersinkError, amount

ANSWER_WITHIN: Final = 5.0
"""Seconds for each answer. Nothing is tried again: no answer is a status, too."""
_START: Final = "countersink_start_time_seconds"
_MEMBERS: Final = "countersink_fleet_members"
_PULLED: Final = "countersink_pulled_messages_total"
_OF_FLUSHERS: Final = ("applied", "deduplicated", "dead_lettered")
"""What only the processes that flush know."""
_NUMBERS: Final = {
    "accepted": "countersink_accepted_increments_total",
    "applied": "countersink_applied_increments_total",
    "deduplicated": "countersink_deduplicated_increments_total",
    "pending": "countersink_pending_increments",
    "waiting": "countersink_waiting_increments",
    "oldest_pending_seconds": "countersink_oldest_pending_seconds",
    "oldest_held_seconds": "countersink_oldest_held_seconds",
    "dead_lettered": "countersink_dead_lettered_messages_total",
    "drift": "countersink_drift_increments",
    "spooling": "countersink_spooling",
    "inexact": "countersink_inexact_reads_total",
}
"""Metrics by the names that --json gives them. Samples with different labels are added; the largest age is taken."""


def add_commands(commands: Commands) -> None:
    parser = command(
        commands,
        "status",
        _status,
        description="Ask a running service for its version, its parts, what it has accepted and applied since its"
        " start, and the jobs that run. With COUNTERSINK_KEY, it shows as much as the key may see: metrics need the"
        " scope read, jobs need admin.",
        json="print a JSON object",
    )
    add_only_service(parser, "this command asks a running service: use --url, or countersink doctor for the data")


def _status(options: argparse.Namespace) -> None:
    with naming_the_url(options):
        service = Transport(url_of(options), header_of_caller(key_of_caller()), None)
    try:
        found = _ask(service)
    finally:
        service.close()
    if options.json:
        tell(json_of(found))
    else:
        for name, text in _lines(found, time.time()):
            tell(f"{name:11}  {text}")
    flush()
    if not found["ready"]:
        raise CountersinkError(f"the service is not ready: {found['why_not']}")


def _ask(service: Transport) -> dict[str, Any]:
    """Everything that the service tells. A field that it does not tell is None, and `untold` says why."""
    untold: list[str] = []
    found: dict[str, Any] = {"url": service.shown, "version": _field(service, "/version", "version")}
    found |= {"ready": True, "why_not": None}
    try:
        _get(service, "/readyz")
    except UnavailableError as error:
        found |= {"ready": False, "why_not": str(error)}
    text = _perhaps(lambda: _get(service, "/metrics").body, "metrics", untold)
    found |= of_metrics((text or b"").decode())
    jobs = _perhaps(lambda: _field(service, "/v1/jobs", "jobs"), "jobs", untold)
    running = None if jobs is None else [job for job in jobs if job["state"] == "running"]
    return found | {"jobs": running, "untold": untold}


def of_metrics(text: str) -> dict[str, Any]:
    samples: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    found: dict[str, Any] = {"since": None, "broker": None, "store": None, "overlay": None}
    for started in samples.get(_START, ()):
        found = {"since": written(datetime.fromtimestamp(started.value, UTC))} | started.labels
    for name, metric in _NUMBERS.items():
        values = [sample.value for sample in samples.get(metric, ())]
        number = max(values, default=0.0) if name.startswith("oldest") else sum(values, 0.0)
        found[name] = (int(number) if number.is_integer() else round(number, 3)) if values else None
    if found["broker"] == "pubsub" and not sum(sample.value for sample in samples.get(_PULLED, ())):
        found |= dict.fromkeys(_OF_FLUSHERS)
    found["members"] = {sample.labels["role"]: int(sample.value) for sample in samples.get(_MEMBERS, ())} or None
    return found


def _get(service: Transport, path: str) -> Answer:
    return service.attempt(Request("GET", path), ANSWER_WITHIN)


def _field(service: Transport, path: str, name: str) -> Any:
    try:
        return _get(service, path).object[name]
    except (ValueError, KeyError) as error:
        raise RejectedError(f"{service.shown} does not answer as Countersink does: is the URL right?") from error


def _perhaps(ask: Callable[[], Any], what: str, untold: list[str]) -> Any:
    try:
        return ask()
    except RequestError as error:
        untold.append(f"{what}: {with_key(error)}")
        return None


def _lines(found: Mapping[str, Any], now: float) -> Iterator[tuple[str, str]]:
    yield "service", f"{found['url']}, version {found['version']}, {'ready' if found['ready'] else 'NOT READY'}"
    if found["since"] is not None:
        since = datetime.fromisoformat(found["since"])
        yield "up since", f"{found['since']} ({lasting(max(now - since.timestamp(), 0))})"
        yield "parts", f"broker {found['broker']}, store {found['store']}, overlay {found['overlay']}"
    if found["accepted"] is not None:
        yield "increments", f"{found['accepted']:,} accepted here since the start; {_applied(found)}"
        yield "pending", _pending(found)
        yield "dead", _dead(found)
    if found["drift"]:
        yield "drift", f"{found['drift']:,}: see countersink audit if it stays"
    if found["spooling"]:
        yield "spool", "takes increments: the broker is unavailable"
    if found["inexact"]:
        number = "1 was" if found["inexact"] == 1 else f"{found['inexact']:,} were"
        yield "reads", f"{number} not exact since the start; countersink doctor says what keeps reads from being exact"
    if found["members"]:
        yield "fleet", ", ".join(f"{number} {role}" for role, number in found["members"].items())
    for job in found["jobs"] or ():
        yield "job", f"{job['id']}: {job['kind']} under {job['prefix']!r}, {job['share']:.0%}"
    if found["jobs"] == []:
        yield "jobs", "none runs"
    for why in found["untold"]:
        yield "not shown", why


def _applied(found: Mapping[str, Any]) -> str:
    number = found["applied"]
    if number is None:
        return "only flushers know how many are applied, and this process has pulled no message"
    duplicates = found["deduplicated"] or 0
    text = f"{number:,} applied" + (f", {amount(duplicates, 'duplicate')} (ids used again)" if duplicates else "")
    return text + (", including some that were accepted before" if number + duplicates > found["accepted"] else "")


def _dead(found: Mapping[str, Any]) -> str:
    number = found["dead_lettered"]
    if number is None:
        return "only flushers know, and this process has pulled no message; countersink dlq list shows all"
    letters = {0: "none", 1: "1 message became a dead letter"}.get(number, f"{number:,} messages became dead letters")
    return f"{letters} here since the start; countersink dlq list shows all"


def _pending(found: Mapping[str, Any]) -> str:
    number = found["pending"]
    text = "not known here: the broker is elsewhere" if number is None else amount(number, "increment")
    if found["oldest_pending_seconds"]:
        text += f"; the oldest has been waiting for {lasting(found['oldest_pending_seconds'])}"
    elif found["oldest_held_seconds"]:
        text += f"; the oldest that this process holds waits for {lasting(found['oldest_held_seconds'])}"
    return text

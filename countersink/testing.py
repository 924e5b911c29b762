"""A Countersink in memory, for the tests of your program: it answers on a port of its own, in a thread of the test.

It counts as the service does: an increment with an id, or a batch under an `Idempotency-Key`, counts once; totals are
exact; what the service refuses is refused. It applies each increment at once, keeps counts by minute, hour and day of
all counters, asks for no key, and forgets everything when it ends. It has no streams, jobs or receipts, and answers
requests for these with 404.
"""

import json
import threading
import time
from collections import Counter as Sums
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http.client import responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import ceil
from socket import SHUT_RDWR, socket
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote, urlsplit

from countersink.calls import Increment
from countersink.rules import flaw_of_delta, flaw_of_id, flaw_of_name, flaw_of_prefix

TURN: Final = 0.02
"""Seconds between two looks whether the service is to end."""
DEFAULT_LISTED: Final = 100
LENGTHS: Final = {"minute": 60, "hour": 3_600, "day": 86_400}
"""Seconds of each period."""
MOST_POINTS: Final = 10_000
LISTED_BY: Final = ("name", "prefix", "contains", "order", "limit", "page_token", "max_age")
_FIELDS: Final = {"delta": flaw_of_delta, "id": flaw_of_id, "counter": flaw_of_name, "value": flaw_of_delta}

Object = dict[str, Any]
Query = Mapping[str, Sequence[str]]


class Service:
    """A service in memory. Give its `url` to your program or to a client, and look at what was counted.

    It ends with `close`, or with the `with` block that it began. `port` is a free one, unless you name one.
    """

    def __init__(self, port: int = 0) -> None:
        self._counts = _Counts()
        self._server = _Server(self._counts, port)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(TURN,), name="countersink-testing", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def value(self, name: str) -> int:
        """The total of a counter. What a client has not sent yet is not in it: call the client's `flush` before."""
        return self.values().get(name, 0)

    def values(self, prefix: str = "") -> dict[str, int]:
        """The totals of all counters whose names begin with the prefix, in the order of their names."""
        return self._counts.under(prefix)

    def clear(self) -> None:
        """Forget all counters, ids and keys, for the next test."""
        self._counts.clear()

    def close(self) -> None:
        """End the service, and the connections that clients keep open."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _RefusedError(Exception):
    def __init__(self, status: int, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.field = field


class _Counts:
    """The totals, and what was used: ids of each counter, keys of batches, keys of changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._totals: dict[str, int] = {}
            self._generations: Sums[str] = Sums()
            self._updated: dict[str, str] = {}
            self._minutes: dict[str, Sums[int]] = {}
            self._ids: dict[tuple[str, str], int] = {}
            self._batches: dict[str, Sums[str]] = {}
            self._changes: dict[tuple[str, str], Object] = {}

    def under(self, prefix: str) -> dict[str, int]:
        with self._lock:
            return {name: self._totals[name] for name in sorted(self._totals) if name.startswith(prefix)}

    def read(self, name: str) -> Object:
        with self._lock:
            value = self._totals.get(name, 0)
            return {
                "name": name,
                "value": value,
                "applied": value,
                "pending": 0,
                "exact": True,
                "as_of": _now(),
                "shards": int(name in self._totals),
                "exists": name in self._totals,
                "generation": self._generations[name],
                "updated_at": self._updated.get(name),
            }

    def count(self, items: Sequence[Increment], key: str | None = None) -> int:
        """Count what was not counted before, and return how much was: by its id, or by the key, which stands for all
        increments without an id. If an id or the key was used for something else, nothing counts.
        """
        with self._lock:
            ids: dict[tuple[str, str], int] = {}
            fresh = []
            under_key: Sums[str] = Sums()
            for item in items:
                if item.id is None:
                    under_key[item.counter] += item.delta
                    if key not in self._batches:
                        fresh.append(item)
                    continue
                used = item.counter, item.id
                before = ids.get(used, self._ids.get(used))
                if before is None:
                    ids[used] = item.delta
                    fresh.append(item)
                elif before != item.delta:
                    raise _RefusedError(422, f"the id {item.id!r} was used with the delta {before} before", "id")
            if key is not None and under_key and self._batches.setdefault(key, under_key) != under_key:
                raise _RefusedError(422, "this key was used with another body before", "Idempotency-Key")
            self._ids |= ids
            for item in fresh:
                if item.delta:
                    self._totals[item.counter] = self._totals.get(item.counter, 0) + item.delta
                    self._updated[item.counter] = _now()
                    self._minutes.setdefault(item.counter, Sums())[int(time.time()) // 60] += item.delta
            return len(items) - len(fresh)

    def points(self, name: str, length: int, first: int, last: int) -> list[Object]:
        """What was counted in each period of this many seconds that begins in the range."""
        sums: Sums[int] = Sums()
        with self._lock:
            for minute, count in self._minutes.get(name, {}).items():
                sums[minute * 60 // length * length] += count
        return [{"from": _second(at), "count": sums[at]} for at in sorted(sums) if first <= at < last and sums[at]]

    def change(self, name: str, value: int, key: str | None, *, exists: bool = True) -> Object:
        """Set the counter, or delete it. Under a key that was used, it only answers as before."""
        with self._lock:
            done = None if key is None else self._changes.get((name, key))
            if done is None:
                done = {"name": name, "before": self._totals.get(name, 0), "after": value}
                self._totals[name] = value
                self._generations[name] += 1
                self._updated[name] = _now()
                if not exists:
                    del self._totals[name]
                if key is not None:
                    self._changes[name, key] = done
            if done["after"] != value:
                raise _RefusedError(422, "this key was used with another value before", "Idempotency-Key")
            return done


class _Server(ThreadingHTTPServer):
    """Its threads are daemons: a program that forgets to close it can end."""

    request_queue_size = 128

    def __init__(self, counts: _Counts, port: int) -> None:
        self.counts = counts
        self._open: set[socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        for connection in list(self._open):
            try:
                connection.shutdown(SHUT_RDWR)
            except OSError:
                continue  # its client has closed it
        super().server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of a connection, one after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def version_string(self) -> str:
        return "Countersink"

    def log_message(self, *_: Any) -> None:
        """The output of the tests is theirs."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            status, answer = self._answer(body)
        except _RefusedError as error:
            status = error.status
            answer = {"type": "about:blank", "title": responses[status], "status": status, "detail": str(error)}
            if error.field:
                answer["field"] = error.field
        said = json.dumps(answer).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status < 400 else "application/problem+json")  # noqa: PLR2004 (errors)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815 (names of the standard library)

    def _answer(self, body: bytes) -> tuple[int, Object]:
        url = urlsplit(self.path)
        query = parse_qs(url.query, keep_blank_values=True)
        counts, key = self.server.counts, self.headers.get("Idempotency-Key")
        match self.command, url.path.split("/")[1:]:
            case "POST", ["v1", "increments"]:
                return _count_many(counts, body, query, key)
            case "POST", ["v1", "counters", name]:
                return _count_one(counts, _name(name), body, query, key)
            case "GET", ["v1", "counters", name]:
                return 200, counts.read(_name(name))
            case "GET", ["v1", "counters"]:
                return 200, _list(counts, query)
            case "GET", ["v1", "counters", name, "series"]:
                return 200, _series(counts, _name(name), query)
            case "PUT", ["v1", "counters", name]:
                return 200, counts.change(_name(name), _fields(_json(body), {"value"}, "value")["value"], key)
            case "POST", ["v1", "counters", name, "reset"]:
                return 200, counts.change(_name(name), 0, key)
            case "DELETE", ["v1", "counters", name]:
                return 200, counts.change(_name(name), 0, key, exists=False)
        raise _RefusedError(404, f"countersink.testing can't do {self.command} {url.path}: use a real service for it")


def _count_one(counts: _Counts, name: str, body: bytes, query: Query, key: str | None) -> tuple[int, Object]:
    fields = _fields(_json(body) if body else {}, {"delta", "id"})
    if by := query.get("by"):
        fields = _fields({**fields, "delta": _whole(by[0], "by")}, {"delta", "id"})
    second = counts.count([Increment(name, fields.get("delta", 1), fields.get("id", key))])
    answer = {"accepted": 1, "receipt": "testing"} | ({"duplicate": True} if second else {})
    return _waited(counts, answer, query, [name])


def _count_many(counts: _Counts, body: bytes, query: Query, key: str | None) -> tuple[int, Object]:
    items: list[Increment] = []
    rejected: list[Object] = []
    for place, found in _items(body):
        try:
            fields = _fields(found, {"counter", "delta", "id"}, "counter")
            items.append(Increment(**fields))
        except _RefusedError as error:
            rejected.append({**place, "reason": str(error)})
    if not items:
        raise _RefusedError(400, rejected[0]["reason"] if rejected else "the body holds no increment")
    second = counts.count(items, key)
    answer = {"accepted": len(items), "rejected": rejected, "receipt": "testing"}
    if second:
        answer |= {"duplicates": second} | ({"duplicate": True} if second == len(items) else {})
    return _waited(counts, answer, query, sorted({item.counter for item in items}), is_batch=True)


def _items(body: bytes) -> list[tuple[Object, Any]]:
    """The increments of a batch, each with its place in it: an array, lines, or deltas by name."""
    lines = body.strip().splitlines()
    found = _json(body) if body.lstrip()[:1] == b"[" or len(lines) == 1 else [_json(line) for line in lines]
    if isinstance(found, dict) and isinstance(found.get("counters"), dict):
        return [({"counter": name}, {"counter": name, "delta": delta}) for name, delta in found["counters"].items()]
    return [({"index": index}, item) for index, item in enumerate(found if isinstance(found, list) else [found])]


def _waited(
    counts: _Counts, answer: Object, query: Query, names: Sequence[str], *, is_batch: bool = False
) -> tuple[int, Object]:
    """The answer with the totals that were asked for. Everything is applied already, so a wait is over at once."""
    waits, wants = query.get("wait") == ["applied"], query.get("return") == ["value"]
    if len(names) == 1 and (wants or (waits and not is_batch)):
        answer["value"] = counts.read(names[0])["value"]
    if is_batch and wants:
        answer["values"] = {name: counts.read(name)["value"] for name in names}
    if wants:
        answer["exact"] = True
    return (200 if waits else 202), answer


def _list(counts: _Counts, query: Query) -> Object:
    if query.keys() - {*LISTED_BY}:
        raise _RefusedError(404, f"countersink.testing lists counters by {', '.join(LISTED_BY)} alone")
    if names := query.get("name"):
        for name in names:
            _fields({"counter": name}, {"counter"})
        return {"counters": [counts.read(name) for name in names], "next_page_token": None}
    prefix, after, limit = (query.get(name, [""])[0] for name in ("prefix", "page_token", "limit"))
    if flaw := flaw_of_prefix(prefix):
        raise _RefusedError(422, f"'prefix' {flaw}", "prefix")
    totals = {name: value for name, value in counts.under(prefix).items() if query.get("contains", [""])[0] in name}
    by_value = query.get("order") == ["value"]
    if by_value and (other := next((name for name in ("contains", "page_token") if query.get(name, [""])[0]), "")):
        raise _RefusedError(422, f"{other!r} can't be combined with 'order=value'", other)
    found = sorted(totals, key=lambda name: -totals[name]) if by_value else [name for name in totals if name > after]
    page = found[: _whole(limit or str(DEFAULT_LISTED), "limit")]
    token = page[-1] if len(page) < len(found) and not by_value else None
    return {"counters": [counts.read(name) for name in page], "next_page_token": token, "exact": True}


def _series(counts: _Counts, name: str, query: Query) -> Object:
    by = query.get("by", [""])[0]
    if by not in LENGTHS:
        raise _RefusedError(422, f"'by' must be {' or '.join(map(repr, LENGTHS))}", "by")
    length = LENGTHS[by]
    begin, end = (_instant(query, side) for side in ("from", "to"))
    if begin is not None and end is not None and begin > end:
        raise _RefusedError(422, "'from' must not be later than 'to'", "from")
    last = ceil((time.time() if end is None else end) / length) * length
    first = last - MOST_POINTS * length if begin is None else min(ceil(begin / length) * length, last)
    if last - first > MOST_POINTS * length:
        raise _RefusedError(422, f"at most {MOST_POINTS} periods in one request: choose a later 'from'", "from")
    points = counts.points(name, length, first, last)
    range_ = {"name": name, "by": by, "from": _second(first), "to": _second(last)}
    return {**range_, "points": points, "total": sum(one["count"] for one in points), "exact": True, "as_of": _now()}


def _instant(query: Query, name: str) -> float | None:
    if name not in query:
        return None
    with suppress(ValueError):
        found = datetime.fromisoformat(query[name][0])
        if found.tzinfo is not None:
            return found.timestamp()
    raise _RefusedError(422, f"{name!r} must be an instant as in RFC 3339, such as 2026-01-31T12:00:00Z", name)


def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _name(segment: str) -> str:
    try:
        name = unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise _RefusedError(400, "the name in the path is not valid percent-encoded UTF-8", "name") from None
    _fields({"counter": name}, {"counter"})
    return name


def _whole(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _RefusedError(422, f"{name!r} must be a whole number", name) from None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise _RefusedError(400, f"the body is not valid JSON: {error}") from None


def _fields(found: Any, allowed: set[str], required: str = "") -> Object:
    """The fields of an object, if each is allowed and valid."""
    if not isinstance(found, dict):
        raise _RefusedError(400, "must be a JSON object")
    if required and required not in found:
        raise _RefusedError(422, f"{required!r} is missing", required)
    for name, value in found.items():
        if flaw := _FIELDS[name](value) if name in allowed else "is not a field of this object":
            raise _RefusedError(422, f"{name!r} {flaw}", "name" if name == "counter" else name)
    return found

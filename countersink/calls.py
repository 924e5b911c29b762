"""Makes requests from a caller's arguments, and objects from the answers; refuses what can't be sent."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from countersink.answers import Accepted, Changed, Counter, JobStatus, Page, RejectedError, Series
from countersink.rules import flaw_of_delta, flaw_of_id, flaw_of_job, flaw_of_name, flaw_of_prefix
from countersink.transport import Answer, Request

MOST_ITEMS: Final = 1_000
"""Items in one request with a key: they become one envelope, which has this limit."""
MOST_NAMES: Final = 1_000
LONGEST_QUERY: Final = 12_000
"""Characters of a URL; the service accepts a request line of 16,384 bytes."""
LONGEST_WAIT: Final = 300.0
"""Seconds: the longest `wait` that the service allows."""

Pairs = Sequence[tuple[str, str]]
T = TypeVar("T")

_NOT_IN_A_HEADER: Final = re.compile(r"^\s|\s$|[\x00-\x1f\x7f-\x9f]")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_KEY: Final = re.compile(r"[!-~]+")


class Increment(NamedTuple):
    """One thing to count: add `delta` to `counter`. With an `id` it counts once, however often it is sent."""

    counter: str
    delta: int = 1
    id: str | None = None


Item = Increment | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how its answer is read."""

    request: Request
    read: Callable[[Answer], T]
    id: str | None = None
    """The id or key under which it is safe to send again."""
    wait: float = 0.0
    """Seconds that the service may take in addition."""


def mint() -> str:
    """A new id, which nobody else has."""
    return os.urandom(16).hex()


def check(what: str, name: str, flaw: str | None) -> None:
    if flaw is not None:
        raise RejectedError(f"{what} {flaw}", field=name)


def header_of_caller(key: str | None) -> dict[str, str]:
    """The header with the key that says who sends a request."""
    if key is None:
        return {}
    check("the key", "key", None if _KEY.fullmatch(key) else "must be printable ASCII without spaces")
    return {"Authorization": f"Bearer {key}"}


def checked(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers, if they can be sent. Raises `ValueError` if not."""
    for name, value in headers.items():
        good = isinstance(name, str) and isinstance(value, str) and _HEADER.fullmatch(name)
        if not good or _NOT_IN_A_HEADER.search(value):
            raise ValueError(f"the header {name!r} can't be sent: names and values must be text without line breaks")
        value.encode()
    return headers


def increment(
    name: str, delta: int, increment_id: str | None, wait: float | None, *, want_value: bool = False
) -> Call[Accepted]:
    sent_as = mint() if increment_id is None else increment_id
    check("the delta", "delta", flaw_of_delta(delta))
    check("the id", "id", flaw_of_id(sent_as))
    return _count(_path_of_counter(name), {"delta": delta, "id": sent_as}, sent_as, {}, wait, want_value=want_value)


def batch(key: str, number: int, body: Any, wait: float | None = None) -> Call[Accepted]:
    """One part of a batch under a key, as `parts` makes them."""
    return _count("/v1/increments", body, key, header_of_key(key, number), wait)


def parts(items: Iterable[Item] | Mapping[str, int]) -> Iterator[tuple[int, Any]]:
    """Each part: the index of its first item, and its body. The same items always make the same parts."""
    deltas = isinstance(items, Mapping)
    rest: Iterator[Any] = iter(items.items() if isinstance(items, Mapping) else items)
    first = 0
    while part := list(islice(rest, MOST_ITEMS)):
        yield first, {"counters": dict(part)} if deltas else [_item(item) for item in part]
        first += len(part)


def set_to(name: str, value: int, key: str | None) -> Call[Changed]:
    check("the value", "value", flaw_of_delta(value))
    return _change("PUT", _path_of_counter(name), {"value": value}, key)


def reset(name: str, key: str | None) -> Call[Changed]:
    return _change("POST", _path_of_counter(name) + "/reset", None, key)


def delete(name: str, key: str | None) -> Call[Changed]:
    return _change("DELETE", _path_of_counter(name), None, key)


def set_shards(name: str, number: int, *, compact: bool) -> Call[int]:
    check("the number of shards", "shards", None if type(number) is int and number > 0 else "must be 1 or more")
    body = {"shards": number, **({"compact": True} if compact else {})}
    return Call(_request("PUT", _path_of_counter(name) + "/shards", body), lambda answer: int(answer.object["shards"]))


def get(name: str, max_age: float | None) -> Call[Counter]:
    query = _query(_seconds("max_age", max_age))
    return Call(_request("GET", _path_of_counter(name) + query), lambda answer: Counter.of(answer.object))


def get_many(names: Iterable[str], max_age: float | None) -> Iterator[Call[list[Counter]]]:
    """As few requests as the length of a URL allows."""
    rest = [urlencode([pair]) for pair in _seconds("max_age", max_age)]
    chunk: list[str] = []
    length = 0
    for name in names:
        check("the counter's name", "name", flaw_of_name(name))
        part = f"name={quote(name, safe='')}"
        if chunk and (len(chunk) == MOST_NAMES or length + len(part) >= LONGEST_QUERY):
            yield Call(_request("GET", "/v1/counters?" + "&".join([*chunk, *rest])), _counters)
            chunk, length = [], 0
        chunk.append(part)
        length += len(part) + 1
    if chunk:
        yield Call(_request("GET", "/v1/counters?" + "&".join([*chunk, *rest])), _counters)


def series(name: str, by: str, begin: datetime | None, end: datetime | None) -> Call[Series]:
    range_ = [("from", _instant("begin", begin)), ("to", _instant("end", end))]
    query = _query([("by", by), *((side, when) for side, when in range_ if when is not None)])
    return Call(_request("GET", f"{_path_of_counter(name)}/series{query}"), lambda answer: Series.of(answer.object))


def path_of_watch(names: Sequence[str], prefix: str | None) -> str:
    """The path of a stream, with its query."""
    check("what to watch", "name", None if bool(names) != (prefix is not None) else "must be names or a prefix")
    for name in names:
        check("the counter's name", "name", flaw_of_name(name))
    if prefix is None and len(names) == 1:
        return _path_of_counter(names[0]) + "/watch"
    if prefix is not None:
        check("the prefix", "prefix", flaw_of_prefix(prefix))
    path = "/v1/watch" + _query([("name", name) for name in names] if prefix is None else [("prefix", prefix)])
    check("the list of names", "name", None if len(path) < LONGEST_QUERY else "is too long: watch a prefix")
    return path


def page(prefix: str, size: int, token: str, *, order: str, unused_for: str | None, contains: str) -> Call[Page]:
    pairs = [("prefix", prefix), ("limit", str(size)), ("page_token", token), ("order", order)]
    others = [("unused_for", unused_for or ""), ("contains", contains)]
    query = _query([*pairs, *(pair for pair in others if pair[1])])
    return Call(_request("GET", f"/v1/counters{query}"), _page)


def start_job(
    kind: str,
    prefix: str,
    *,
    delta: int | None,
    shards: int | None,
    days: int | None,
    job_id: str | None,
    by: str | None,
    begin: datetime | None,
    end: datetime | None,
) -> Call[JobStatus]:
    sent_as = mint() if job_id is None else job_id
    check("the prefix", "prefix", flaw_of_prefix(prefix))
    check("the id", "id", flaw_of_job(sent_as))
    if delta is not None:
        check("the delta", "delta", flaw_of_delta(delta))
    more = {"delta": delta, "shards": shards, "days": days, "by": by}
    more |= {"from": _instant("begin", begin), "to": _instant("end", end)}
    body = {"kind": kind, "prefix": prefix, "id": sent_as} | {
        name: value for name, value in more.items() if value is not None
    }
    return Call(_request("POST", "/v1/jobs", body), lambda answer: JobStatus.of(answer.object), sent_as)


def job(job_id: str) -> Call[JobStatus]:
    return Call(_request("GET", _path_of_job(job_id)), lambda answer: JobStatus.of(answer.object))


def stop_job(job_id: str) -> Call[JobStatus]:
    return Call(_request("DELETE", _path_of_job(job_id)), lambda answer: JobStatus.of(answer.object))


def export(job_id: str, token: str) -> Call[tuple[bytes, str | None]]:
    """A chunk of the result, and the token of the next one."""
    path = f"{_path_of_job(job_id)}/export{_query([('page_token', token)])}"
    return Call(_request("GET", path), lambda answer: (answer.body, answer.headers.get("next-page-token")))


def receipt(receipt_id: str) -> Call[str]:
    flaw = None if receipt_id and receipt_id.isascii() else "is what the answer to a POST said it is"
    check("a receipt", "receipt", flaw)
    path = f"/v1/receipts/{quote(receipt_id, safe='')}"
    return Call(_request("GET", path), lambda answer: str(answer.object["state"]))


def _instant(name: str, when: datetime | None) -> str | None:
    if when is None:
        return None
    check(f"the {name}", name, None if when.utcoffset() is not None else "must have a time zone")
    return when.astimezone(UTC).isoformat()


def _request(method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Request:
    return Request(method, path, None if body is None else json.dumps(body).encode(), headers or {})


def _change(method: str, path: str, body: Any, key: str | None) -> Call[Changed]:
    sent_as = mint() if key is None else key
    request = _request(method, path, body, header_of_key(sent_as, 0))
    return Call(request, lambda answer: Changed.of(answer.object, sent_as), sent_as)


def _count(
    path: str, body: Any, sent_as: str, headers: Mapping[str, str], wait: float | None, *, want_value: bool = False
) -> Call[Accepted]:
    pairs = [("wait", "applied"), *_seconds("timeout", wait)] if wait is not None else []
    query = _query([*pairs, ("return", "value")] if want_value else pairs)
    request = _request("POST", path + query, body, headers)
    return Call(request, lambda answer: Accepted.of(answer.object, sent_as), sent_as, min(wait or 0.0, LONGEST_WAIT))


def _counters(answer: Answer) -> list[Counter]:
    return [Counter.of(counter) for counter in answer.object["counters"]]


def _page(answer: Answer) -> Page:
    return Page(_counters(answer), answer.object.get("next_page_token"), bool(answer.object.get("exact", True)))


def _path_of_counter(name: str) -> str:
    check("the counter's name", "name", flaw_of_name(name))
    return f"/v1/counters/{quote(name, safe='')}"


def _path_of_job(job_id: str) -> str:
    check("the id", "id", flaw_of_job(job_id))
    return f"/v1/jobs/{job_id}"


def _query(pairs: Pairs) -> str:
    return f"?{urlencode(pairs, quote_via=quote)}" if pairs else ""


def _seconds(name: str, value: float | None) -> Pairs:
    if value is None:
        return ()
    check(f"'{name}'", name, None if 0 <= value < float("inf") else "must be a number of seconds, 0 or more")
    return ((name, f"{value:.3f}"),)


def header_of_key(key: str, part: int) -> dict[str, str]:
    """The key of one part of a batch. No other caller can have chosen the same key."""
    check("the key", "key", flaw_of_id(key))
    flaw = "can't be a header: no controls, no space at its ends" if _NOT_IN_A_HEADER.search(key) else None
    check("the key", "key", flaw)
    return {"Idempotency-Key": key if part == 0 else sha256(f"{part}\0{key}".encode()).hexdigest()}


def _item(item: Item) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return {name: value for name, value in item.items() if name != "id" or value is not None}
    counter, delta, increment_id, *_ = item
    return {"counter": counter, "delta": delta} | ({} if increment_id is None else {"id": increment_id})

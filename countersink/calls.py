"""Makes the parts of requests from a caller's arguments, and refuses what can't be sent."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from countersink.answers import RejectedError
from countersink.rules import flaw_of_id, flaw_of_job, flaw_of_name, flaw_of_prefix
from countersink.transport import Request

PATIENCE: Final = 30.0
"""Seconds for which a request is tried again."""
READ_PATIENCE: Final = 2.0
"""The same for a read of counters, since a page may wait for it. A list that has begun continues for `PATIENCE`."""
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


def mint() -> str:
    """A new id, which nobody else has."""
    return os.urandom(16).hex()


def check(what: str, name: str, flaw: str | None) -> None:
    if flaw is not None:
        raise RejectedError(f"{what} {flaw}", field=name)


def header_of_caller(key: str | None) -> dict[str, str]:
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


def parts(items: Iterable[Item] | Mapping[str, int]) -> Iterator[tuple[int, Any]]:
    """Each part: the index of its first item, and its body. The same items always make the same parts."""
    deltas = isinstance(items, Mapping)
    if deltas and isinstance(items.get("counter"), str):  # type: ignore[union-attr]
        raise RejectedError(f"one item is a list of one: [{items!r:.100}]", field="items")
    for name in items if deltas else ():  # JSON would make texts of some
        check("the counter's name", "items", None if isinstance(name, str) else f"must be text, is {name!r:.100}")
    rest: Iterator[Any] = iter(items.items() if isinstance(items, Mapping) else items)
    first = 0
    while part := list(islice(rest, MOST_ITEMS)):
        yield first, {"counters": dict(part)} if deltas else [_item(item) for item in part]
        first += len(part)


def queries(names: Iterable[str]) -> Iterator[list[str]]:
    """The parameters that name them, for as few requests as the length of a URL allows."""
    check("the names", "name", f"must be a list, such as [{names!r:.100}]" if isinstance(names, str) else None)
    chunk: list[str] = []
    length = 0
    for name in names:
        check("the counter's name", "name", flaw_of_name(name))
        part = f"name={quote(name, safe='')}"
        if chunk and (len(chunk) == MOST_NAMES or length + len(part) >= LONGEST_QUERY):
            yield chunk
            chunk, length = [], 0
        chunk.append(part)
        length += len(part) + 1
    if chunk:
        yield chunk


def path_of_watch(names: Sequence[str], prefix: str | None) -> str:
    check("what to watch", "name", None if bool(names) != (prefix is not None) else "must be names or a prefix")
    for name in names:
        check("the counter's name", "name", flaw_of_name(name))
    if prefix is None and len(names) == 1:
        return path_of_counter(names[0]) + "/watch"
    if prefix is not None:
        check("the prefix", "prefix", flaw_of_prefix(prefix))
    path = "/v1/watch" + query([("name", name) for name in names] if prefix is None else [("prefix", prefix)])
    check("the list of names", "name", None if len(path) < LONGEST_QUERY else "is too long: watch a prefix")
    return path


def instant(name: str, when: datetime | None) -> str | None:
    if when is None:
        return None
    check(f"the {name}", name, None if isinstance(when, datetime) else f"must be a datetime, not {when!r:.100}")
    check(f"the {name}", name, None if when.utcoffset() is not None else "must have a time zone")
    return when.astimezone(UTC).isoformat()


def request(method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Request:
    return Request(method, path, None if body is None else json.dumps(body).encode(), headers or {})


def path_of_counter(name: str) -> str:
    check("the counter's name", "name", flaw_of_name(name))
    return f"/v1/counters/{quote(name, safe='')}"


def path_of_job(job_id: str) -> str:
    check("the id", "id", flaw_of_job(job_id))
    return f"/v1/jobs/{job_id}"


def query(pairs: Pairs) -> str:
    return f"?{urlencode(pairs, quote_via=quote)}" if pairs else ""


def waits(wait: float | None) -> Pairs:
    """The parameters of a request that waits until it is applied, if it does."""
    return [("wait", "applied"), *seconds("timeout", wait)] if wait is not None else ()


def is_duration(value: object) -> bool:
    """Whether it is a number, 0 or more, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def seconds(name: str, value: float | None) -> Pairs:
    if value is None:
        return ()
    good = is_duration(value) and value < float("inf")
    check(f"'{name}'", name, None if good else f"must be a number of seconds, 0 or more, not {value!r:.100}")
    return ((name, f"{value:.3f}"),)


def header_of_key(key: str, part: int) -> dict[str, str]:
    """The key of one part of a batch. No other caller can have chosen the same key."""
    check("the key", "key", flaw_of_id(key))
    flaw = (
        "can't be a header: remove control characters, and spaces at its ends" if _NOT_IN_A_HEADER.search(key) else None
    )
    check("the key", "key", flaw)
    return {"Idempotency-Key": key if part == 0 else sha256(f"{part}\0{key}".encode()).hexdigest()}


def _item(item: Item) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return {name: value for name, value in item.items() if name != "id" or value is not None}
    if not isinstance(item, (tuple, list)) or len(item) < len(Increment._fields):
        like = '{"counter": "a", "delta": 1, "id": "x"}'
        flaw = f"must be an Increment, or a dict such as {like} (delta and id are optional), is {item!r:.100}"
        raise RejectedError(
            f"an item {flaw}. Deltas by name are a dict of their own: {{'a': 1, 'b': 2}}", field="items"
        )
    counter, delta, increment_id, *_ = item
    return {"counter": counter, "delta": delta} | ({} if increment_id is None else {"id": increment_id})

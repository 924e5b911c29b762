"""Makes paths, queries and bodies from a caller's arguments; refuses what can't be sent."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, urlencode

from countersink.client.answers import RejectedError
from shared.model.batches import batches
from shared.model.jobs import flaw_of_job, flaw_of_prefix
from shared.model.words import Increment, flaw_of_delta, flaw_of_id, flaw_of_name

MOST_ITEMS: Final = 1_000
"""Items in one request with a key: they become one envelope, which has this limit."""
MOST_NAMES: Final = 1_000
LONGEST_QUERY: Final = 12_000
"""Characters of a URL; the service accepts a request line of 16,384 bytes."""

Pairs = Sequence[tuple[str, str]]
Item = Increment | Mapping[str, Any]

_NOT_IN_A_HEADER: Final = re.compile(r"^\s|\s$|[\x00-\x1f\x7f-\x9f]")

_KEY: Final = re.compile(r"[!-~]+")


def check(what: str, field: str, flaw: str | None) -> None:
    if flaw is not None:
        raise RejectedError(f"{what} {flaw}", field=field)


def header_of_caller(key: str | None) -> dict[str, str]:
    """The header with the key that says who sends a request."""
    if key is None:
        return {}
    check("the key", "key", None if _KEY.fullmatch(key) else "must be printable ASCII without spaces")
    return {"Authorization": f"Bearer {key}"}


def increment(delta: int, increment_id: str) -> dict[str, Any]:
    check("the delta", "delta", flaw_of_delta(delta))
    check("the id", "id", flaw_of_id(increment_id))
    return {"delta": delta, "id": increment_id}


def value(number: int) -> dict[str, Any]:
    check("the value", "value", flaw_of_delta(number))
    return {"value": number}


def shards(number: int, *, compact: bool) -> dict[str, Any]:
    check("the number of shards", "shards", None if type(number) is int and number > 0 else "must be 1 or more")
    return {"shards": number, **({"compact": True} if compact else {})}


def path_of_counter(name: str) -> str:
    check("the counter's name", "name", flaw_of_name(name))
    return f"/v1/counters/{quote(name, safe='')}"


def job(kind: str, prefix: str, delta: int | None, shards: int | None, job_id: str) -> dict[str, Any]:
    check("the prefix", "prefix", flaw_of_prefix(prefix))
    check("the id", "id", flaw_of_job(job_id))
    if delta is not None:
        check("the delta", "delta", flaw_of_delta(delta))
    numbers = {"delta": delta, "shards": shards}
    said = {name: number for name, number in numbers.items() if number is not None}
    return {"kind": kind, "prefix": prefix, "id": job_id} | said


def path_of_job(job_id: str) -> str:
    check("the id", "id", flaw_of_job(job_id))
    return f"/v1/jobs/{job_id}"


def path_of_receipt(receipt: str) -> str:
    flaw = None if receipt and receipt.isascii() else "is what the answer to a POST said it is"
    check("a receipt", "receipt", flaw)
    return f"/v1/receipts/{quote(receipt, safe='')}"


def query(pairs: Pairs) -> str:
    return f"?{urlencode(pairs, quote_via=quote)}" if pairs else ""


def seconds(name: str, value: float | None) -> Pairs:
    if value is None:
        return ()
    check(f"'{name}'", name, None if 0 <= value < float("inf") else "must be a number of seconds, 0 or more")
    return ((name, f"{value:.3f}"),)


def queries(names: Iterable[str], others: Pairs) -> Iterator[str]:
    """As few requests as the length of a URL allows."""
    rest = [urlencode([pair]) for pair in others]
    for parts, _ in batches(map(_name, names), lambda part: len(part) + 1, LONGEST_QUERY, MOST_NAMES):
        yield "?" + "&".join([*parts, *rest])


def _name(name: str) -> str:
    check("the counter's name", "name", flaw_of_name(name))
    return f"name={quote(name, safe='')}"


def header_of_key(key: str, part: int) -> dict[str, str]:
    """The key of one part of a batch. No other caller can have chosen the same key."""
    check("the key", "key", flaw_of_id(key))
    check(
        "the key",
        "key",
        "can't be a header: no controls, no space at its ends" if _NOT_IN_A_HEADER.search(key) else None,
    )
    return {"Idempotency-Key": key if part == 0 else sha256(f"{part}\0{key}".encode()).hexdigest()}


def bodies(items: Iterable[Item] | Mapping[str, int]) -> Iterator[tuple[int, Any]]:
    """Each part: the index of its first item, and its body. The same items always make the same parts."""
    deltas = isinstance(items, Mapping)
    rest: Iterator[Any] = iter(items.items() if isinstance(items, Mapping) else items)
    first = 0
    while part := list(islice(rest, MOST_ITEMS)):
        yield first, {"counters": dict(part)} if deltas else [_item(item) for item in part]
        first += len(part)


def _item(item: Item) -> dict[str, Any]:
    if isinstance(item, Increment):
        item = {"counter": item.counter, "delta": item.delta, "id": item.id}
    return {name: value for name, value in item.items() if name != "id" or value is not None}

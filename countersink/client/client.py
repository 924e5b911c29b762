"""The Python client: sends each increment under an id until the service has accepted it."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from countersink.client import requests
from countersink.client.answers import (
    Accepted,
    Changed,
    Counter,
    JobStatus,
    RejectedError,
    UnavailableError,
)
from countersink.client.transport import Transport
from shared.runtime.ids import mint

LONGEST_WAIT: Final = 300.0
"""Seconds: the longest `wait` that the service allows."""

T = TypeVar("T")


class Client:
    """Every increment travels under an id, its own or a new one, so that a retry never counts twice.

    `patience` is for how many seconds a request is tried again: what can't be reached by then, or still says "later",
    is an `UnavailableError`; what the service refuses is a `RejectedError` at once. Use it within `async with`, from
    any number of tasks. `key` is the key that the service wants.
    """

    def __init__(
        self, url: str, *, key: str | None = None, patience: float = 30.0, headers: Mapping[str, str] | None = None
    ) -> None:
        named = {"Content-Type": "application/json", **requests.header_of_caller(key), **(headers or {})}
        self._transport = Transport(url, patience, named)

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def increment(
        self,
        name: str,
        delta: int = 1,
        *,
        id: str | None = None,  # noqa: A002 (what the service calls it)
        wait: float | None = None,
    ) -> Accepted:
        """Add to a counter. With `wait`, return when it is applied, or after so many seconds."""
        sent_as = mint() if id is None else id
        body = requests.increment(delta, sent_as)
        return await self._count(requests.path_of_counter(name), body, sent_as, {}, wait)

    async def increment_many(
        self, items: Iterable[requests.Item] | Mapping[str, int], *, key: str | None = None, wait: float | None = None
    ) -> Accepted:
        """Increments, or deltas by name, under one key: sent again under it they count no second time.

        Each thousand of them is a request that counts or fails by itself, so after an error send all of them again.
        Bad ones are `rejected`, and the others count; a thousand without a good one is a `RejectedError`.
        """
        sent_as = mint() if key is None else key
        all_of_it = Accepted(0, "", sent_as)
        for number, (first, body) in enumerate(requests.bodies(items)):
            headers = requests.header_of_key(sent_as, number)
            part = await self._count("/v1/increments", body, sent_as, headers, wait)
            all_of_it = _joined(all_of_it, part, first)
        return all_of_it

    async def set(self, name: str, value: int, *, key: str | None = None) -> Changed:
        """Set the counter to `value`. It replaces everything accepted before; later increments are added to it."""
        return await self._change("PUT", requests.path_of_counter(name), requests.value(value), key)

    async def reset(self, name: str, *, key: str | None = None) -> Changed:
        """Set the counter to 0."""
        return await self._change("POST", requests.path_of_counter(name) + "/reset", None, key)

    async def delete(self, name: str, *, key: str | None = None) -> Changed:
        """Set the counter to 0 and remove it from lists until it is counted again."""
        return await self._change("DELETE", requests.path_of_counter(name), None, key)

    async def set_shards(self, name: str, shards: int, *, compact: bool = False) -> int:
        """Raise the number of shards to at least this; with `compact`, also lower it. Returns the number now."""
        body = requests.shards(shards, compact=compact)
        answer = await self._transport.send("PUT", requests.path_of_counter(name) + "/shards", body)
        return _read(answer, lambda answer: int(answer["shards"]))

    async def get(self, name: str, *, max_age: float | None = None) -> Counter:
        """Read the counter. A cached part of the answer is at most `max_age` seconds old."""
        query = requests.query(requests.seconds("max_age", max_age))
        return _read(await self._transport.send("GET", requests.path_of_counter(name) + query), Counter.of)

    async def get_many(self, names: Iterable[str], *, max_age: float | None = None) -> list[Counter]:
        """Read several counters; the answers are in the same order."""
        found: list[Counter] = []
        for query in requests.queries(names, requests.seconds("max_age", max_age)):
            found += _read(await self._transport.send("GET", f"/v1/counters{query}"), _counters)
        return found

    async def pages(self, prefix: str = "", *, page: int = 100) -> AsyncIterator[Sequence[Counter]]:
        """Like `list`, in pages as the service sends them."""
        token: str | None = ""
        while token is not None:
            query = requests.query([("prefix", prefix), ("limit", str(page)), ("page_token", token)])
            answer = await self._transport.send("GET", f"/v1/counters{query}")
            yield _read(answer, _counters)
            token = answer.get("next_page_token")

    async def list(self, prefix: str = "", *, page: int = 100) -> AsyncIterator[Counter]:
        """All counters whose names start with the prefix, in the order of their names."""
        async for counters in self.pages(prefix, page=page):
            for counter in counters:
                yield counter

    async def start_job(
        self,
        kind: str,
        prefix: str,
        delta: int | None = None,
        *,
        shards: int | None = None,
        id: str | None = None,  # noqa: A002 (what the service calls it)
    ) -> JobStatus:
        """Have it done to each counter under the prefix, once for each id: `add` the delta, `reset`, `delete`,
        `export`, or `compact` to so many shards. Flushers do it.
        """
        body = requests.job(kind, prefix, delta, shards, mint() if id is None else id)
        return _read(await self._send_as(body["id"], "POST", "/v1/jobs", body), JobStatus.of)

    async def job(self, job: str) -> JobStatus:
        """The job and its progress."""
        return _read(await self._transport.send("GET", requests.path_of_job(job)), JobStatus.of)

    async def stop_job(self, job: str) -> JobStatus:
        """Stop the job. Returns it: `failed`, unless it had ended before. What is done stays done."""
        return _read(await self._transport.send("DELETE", requests.path_of_job(job)), JobStatus.of)

    async def export(self, job: str) -> AsyncIterator[bytes]:
        """The result of an `export` job that is done: lines of JSON in the order of names, in chunks."""
        token: str | None = ""
        while token is not None:
            lines, headers = await self._transport.fetch(
                f"{requests.path_of_job(job)}/export{requests.query([('page_token', token)])}"
            )
            yield lines
            token = headers.get("Next-Page-Token")

    async def receipt(self, receipt: str) -> str:
        """The state of an increment: pending, applied, dead-lettered or unknown."""
        answer = await self._transport.send("GET", requests.path_of_receipt(receipt))
        return _read(answer, lambda answer: str(answer["state"]))

    async def _change(self, method: str, path: str, body: Any, key: str | None) -> Changed:
        sent_as = mint() if key is None else key
        answer = await self._send_as(sent_as, method, path, body, headers=requests.header_of_key(sent_as, 0))
        return _read(answer, lambda answer: Changed.of(answer, sent_as))

    async def _count(
        self, path: str, body: Any, sent_as: str, headers: Mapping[str, str], wait: float | None
    ) -> Accepted:
        query = requests.query([("wait", "applied"), *requests.seconds("timeout", wait)] if wait is not None else [])
        longer = min(wait or 0.0, LONGEST_WAIT)
        answer = await self._send_as(sent_as, "POST", path + query, body, headers=headers, wait=longer)
        return _read(answer, lambda answer: Accepted.of(answer, sent_as))

    async def _send_as(self, sent_as: str, method: str, path: str, body: Any, **more: Any) -> dict[str, Any]:
        """The answer to a request that is safe to send again with this id, which an `UnavailableError` tells."""
        try:
            return await self._transport.send(method, path, body, **more)
        except UnavailableError as error:
            error.id = sent_as
            raise


def _counters(answer: Mapping[str, Any]) -> "Sequence[Counter]":
    return [Counter.of(counter) for counter in answer["counters"]]


def _joined(before: Accepted, part: Accepted, first: int) -> Accepted:
    """`first`: the index in the whole batch of this part's first item."""
    rejected = [replace(bad, item=bad.item + first) if isinstance(bad.item, int) else bad for bad in part.rejected]
    return Accepted(
        accepted=before.accepted + part.accepted,
        receipt=".".join(filter(None, (before.receipt, part.receipt))),
        id=before.id,
        rejected=(*before.rejected, *rejected),
    )


def _read(answer: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T]) -> T:
    try:
        return read(answer)
    except (KeyError, TypeError, ValueError) as error:
        raise RejectedError("the answer is not one of Countersink's: is the URL right?") from error

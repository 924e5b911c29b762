"""The client for any program: counts in the background, asks the service for everything else, and follows streams."""

import json
import logging
import ssl
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar
from urllib.parse import quote, urlencode

from countersink import calls
from countersink.answers import (
    Accepted,
    Changed,
    Counter,
    JobStatus,
    Page,
    RejectedError,
    RequestError,
    Series,
    UnavailableError,
)
from countersink.calls import PATIENCE
from countersink.rules import flaw_of_delta, flaw_of_id, flaw_of_job, flaw_of_prefix
from countersink.sender import Sender
from countersink.tally import ONE, Tally
from countersink.transport import AGAIN, ONE_TRY, SHORTEST_TRY, UNAUTHORIZED, Answer, Request, Retries, Transport, now

# Reads a stream of counters: connects again when it ends, and continues where it was.


SILENCE: Final = 30.0
"""Seconds after which a stream is given up. The service sends something every ten."""

_log = logging.getLogger(__name__)


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
            if not _may_try_again(transport, error, retries, until - time.monotonic()):
                raise
        except RejectedError:
            raise
        except Exception as error:
            raise RejectedError(transport.stranger()) from error


def _may_try_again(transport: Transport, error: UnavailableError, retries: Retries, left: float) -> bool:
    """Wait until the next try. False if that is not in the seconds that are left, or the client is closed."""
    _log.info("%s", error)
    delay = retries.delay(error)
    return not transport.closed.is_set() and delay <= left and not transport.closed.wait(delay)


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


INTERVAL: Final = 0.2
MOST: Final = 100_000
CLOSING: Final = 2.0

T = TypeVar("T")


class Client:
    """Count with `incr`. It never waits and never raises: increments are summed per name and sent in the background,
    until the service accepts them. What only the client holds is lost if its process is killed.

    All other methods wait for the answer. They try again for 30 seconds, then raise `UnavailableError`; `get`,
    `get_many`, `top`, `series` and the first page of a list only for 2 seconds, since a page may wait for them.
    `patience` is another number of seconds for all of them. What the service refuses is a `RejectedError` at once.

    With the URL `pubsub://PROJECT/TOPIC` it counts on a topic of Pub/Sub, and can't ask for anything.

    One client serves all threads of a process, and the children of a fork. `key` is the key that the service wants, or
    a function that returns one before each attempt, such as a Google ID token. `interval` is the seconds for which
    increments gather, and `most` the number of names and ids that the client holds at most, besides as many that it is
    sending.
    """

    def __init__(
        self,
        url: str,
        key: str | Callable[[], str] | None = None,
        *,
        patience: float | None = None,
        interval: float = INTERVAL,
        most: int = MOST,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        _check(url=url, key=key, patience=patience, interval=interval, most=most, tls=tls)
        self._transport = _transport(url, key, calls.checked(headers or {}), tls)
        self._patience = patience
        self._tally = Tally(most)
        self._sender = Sender(self._tally, self._transport, interval)
        weakref.finalize(self, self._sender.abandon).atexit = False

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client can't be copied or pickled: make another one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def incr(self, name: str, by: int = ONE, id: str | None = None) -> None:  # noqa: A002 (what the service calls it)
        """Add to a counter, in the background. With an `id`, it counts once, however often it is asked for."""
        tally = self._tally
        try:
            if by is ONE and id is None and type(name) is str:
                tally.events.append(name)
            else:
                tally.add(name, by, id)
            if len(tally.events) > self._sender.mark:
                self._sender.attend()
        except BaseException:  # of a signal handler. The increment may be in the list, and nobody may know of it
            self._sender.attend()
            raise

    @property
    def dropped(self) -> int:
        """How many increments were dropped since this process has the client: they do not count, or nobody knows."""
        return self._tally.dropped

    def flush(self, timeout: float = PATIENCE) -> bool:
        """Wait until everything counted before is accepted, or dropped. Returns False if that took too long."""
        return self._sender.flush(timeout)

    def close(self, timeout: float = CLOSING) -> bool:
        """Send the rest, for so long, and end. Returns False if something was left: it is dropped."""
        return self._sender.close(timeout)

    def increment(
        self,
        name: str,
        delta: int = 1,
        *,
        id: str | None = None,  # noqa: A002 (what the service calls it)
        wait: float | None = None,
        want_value: bool = False,
    ) -> Accepted:
        """Add to a counter, and wait until the service has accepted it; with `wait`, until it is applied, or for that
        many seconds. With `want_value`, the answer has the total, with this increment.
        """
        sent_as = calls.mint() if id is None else id
        calls.check("the delta", "delta", flaw_of_delta(delta))
        calls.check("the id", "id", flaw_of_id(sent_as))
        query = calls.query([*calls.waits(wait), *([("return", "value")] if want_value else [])])
        request = calls.request("POST", calls.path_of_counter(name) + query, {"delta": delta, "id": sent_as})
        return self._count(request, sent_as, wait)

    def increment_many(
        self, items: Iterable[calls.Item] | Mapping[str, int], *, key: str | None = None, wait: float | None = None
    ) -> Accepted:
        """Increments, or deltas by name, under one key: sent again under it they count no second time. An item is an
        `Increment("a", 2, "id")`, or a dict with `counter`, and perhaps `delta` (1) and `id`.

        Each thousand of them is a request that counts or fails by itself, so after an error send all of them again.
        Bad ones are `rejected`, and the others count; a thousand without a good one is a `RejectedError`.
        """
        sent_as = calls.mint() if key is None else key
        all_of_it = Accepted(0, "", sent_as)
        for number, (first, body) in enumerate(calls.parts(items)):
            headers, path = calls.header_of_key(sent_as, number), "/v1/increments" + calls.query(calls.waits(wait))
            part = self._count(calls.request("POST", path, body, headers), sent_as, wait)
            all_of_it = _joined(all_of_it, part, first)
        return all_of_it

    def get(self, name: str, *, max_age: float | None = None) -> Counter:
        """Read the counter. A cached part of the answer is at most `max_age` seconds old."""
        path = calls.path_of_counter(name) + calls.query(calls.seconds("max_age", max_age))
        return self._read(lambda answer: Counter.of(answer.object), path)

    def get_many(self, names: Iterable[str], *, max_age: float | None = None) -> "list[Counter]":
        """Read several counters; the answers are in the same order."""
        found: list[Counter] = []
        rest = [urlencode([pair]) for pair in calls.seconds("max_age", max_age)]
        for some in calls.queries(names):
            found += self._read(_counters, "/v1/counters?" + "&".join([*some, *rest]))
        return found

    def page(
        self,
        prefix: str = "",
        token: str = "",
        *,
        size: int = 100,
        order: str = "name",
        unused_for: str | None = None,
        contains: str = "",
    ) -> Page:
        """The page of the list that has this token, or the first one. With `order="value"` there is one page, of the
        `size` largest counters. With `unused_for="400d"` it has only counters that were not changed for so long,
        and with `contains` only those whose names have that part, if the data is in a SQLite file.
        """
        pairs = [("prefix", prefix), ("limit", str(size)), ("page_token", token), ("order", order)]
        pairs += [("unused_for", unused_for or ""), ("contains", contains)]
        path = "/v1/counters" + calls.query([pair for pair in pairs if pair[1]])
        return self._read(_page, path, PATIENCE if token else None)

    def top(self, prefix: str = "", n: int = 10) -> "list[Counter]":
        """The `n` largest counters whose names start with the prefix, at most 1,000, the largest first. Of equal ones,
        in the order of their names. On Google Cloud, `RejectedError` unless `COUNTERSINK_TOP` names the prefix.
        """
        return [*self.page(prefix, size=n, order="value").counters]

    def list(self, prefix: str = "", *, page: int = 100, contains: str = "") -> Iterator[Counter]:
        """All counters whose names start with the prefix, in the order of their names; with `contains`, see `page`,
        which also says whether the list may lack some.
        """
        token: str | None = ""
        while token is not None:
            counters, token, _ = self.page(prefix, token, size=page, contains=contains)
            yield from counters

    def watch(self, *names: str, prefix: str | None = None) -> Iterator[Counter]:
        """Some counters, or all under the prefix: their values now, and each change, for ever. If the stream is cut, it
        connects again; after `patience` seconds (30) without success it raises `UnavailableError`.
        """
        return (counter for counter in self.signs(*names, prefix=prefix) if counter is not None)

    def signs(self, *names: str, prefix: str | None = None) -> Iterator[Counter | None]:
        """Like `watch`, with a None at least every ten seconds: a sign that the stream lives."""
        self._check_that_it_can_be_asked()
        return self._while_kept(watch(self._transport, calls.path_of_watch(names, prefix), self._patient(PATIENCE)))

    def _while_kept(self, signs: Iterator[T]) -> Iterator[T]:
        """The signs. A program that follows them keeps the client from being collected, which would end it."""
        yield from signs

    def series(
        self, name: str, by: str = "day", *, begin: datetime | None = None, end: datetime | None = None
    ) -> Series:
        """What was counted by `minute`, `hour` or `day` (UTC), from `begin` until before `end`. Without them, the range
        is as long as the service keeps whole periods, until now.
        """
        ends = [("from", calls.instant("begin", begin)), ("to", calls.instant("end", end))]
        pairs = [("by", by), *((side, when) for side, when in ends if when is not None)]
        path = f"{calls.path_of_counter(name)}/series{calls.query(pairs)}"
        return self._read(lambda answer: Series.of(answer.object), path)

    def set(self, name: str, value: int, *, key: str | None = None) -> Changed:
        """Set the counter to `value`. It replaces everything accepted before; later increments are added to it. What
        this client still holds is accepted later.
        """
        calls.check("the value", "value", flaw_of_delta(value))
        return self._change("PUT", calls.path_of_counter(name), {"value": value}, key)

    def reset(self, name: str, *, key: str | None = None) -> Changed:
        """Set the counter to 0."""
        return self._change("POST", f"{calls.path_of_counter(name)}/reset", None, key)

    def delete(self, name: str, *, key: str | None = None) -> Changed:
        """Set the counter to 0 and remove it from lists until it is counted again."""
        return self._change("DELETE", calls.path_of_counter(name), None, key)

    def set_shards(self, name: str, shards: int, *, compact: bool = False) -> int:
        """Raise the number of shards to at least this; with `compact`, also lower it. Returns the number now."""
        calls.check(
            "the number of shards", "shards", None if type(shards) is int and shards > 0 else "must be 1 or more"
        )
        body = {"shards": shards, **({"compact": True} if compact else {})}
        request = calls.request("PUT", f"{calls.path_of_counter(name)}/shards", body)
        return self._ask(lambda answer: int(answer.object["shards"]), request)

    def start_job(
        self,
        kind: str,
        prefix: str,
        delta: int | None = None,
        *,
        shards: int | None = None,
        days: int | None = None,
        by: str | None = None,
        begin: datetime | None = None,
        end: datetime | None = None,
        id: str | None = None,  # noqa: A002 (what the service calls it)
    ) -> JobStatus:
        """Do one thing to each counter under the prefix, once for each id: `add` the delta, `reset`, `delete`,
        `export`, `compact` to this many shards, or `expire`: delete what was not changed for this many days. Flushers
        do it. With `by` (`minute`, `hour` or `day`), an export has the counts of these periods, between `begin` and
        `end` if you say so.
        """
        sent_as = calls.mint() if id is None else id
        calls.check("the prefix", "prefix", flaw_of_prefix(prefix))
        calls.check("the id", "id", flaw_of_job(sent_as))
        if delta is not None:
            calls.check("the delta", "delta", flaw_of_delta(delta))
        more = {"delta": delta, "shards": shards, "days": days, "by": by}
        more |= {"from": calls.instant("begin", begin), "to": calls.instant("end", end)}
        given = {name: value for name, value in more.items() if value is not None}
        body = {"kind": kind, "prefix": prefix, "id": sent_as} | given
        return self._ask(_job, calls.request("POST", "/v1/jobs", body), sent_as)

    def job(self, job: str) -> JobStatus:
        """The job and its progress."""
        return self._ask(_job, calls.request("GET", calls.path_of_job(job)))

    def stop_job(self, job: str) -> JobStatus:
        """Stop the job. Returns it: `failed`, unless it had ended before. What is done stays done."""
        return self._ask(_job, calls.request("DELETE", calls.path_of_job(job)))

    def export_chunk(self, job: str, token: str = "") -> tuple[bytes, str | None]:
        """A chunk of an export, and the token of the next one; None after the last."""
        request = calls.request("GET", f"{calls.path_of_job(job)}/export{calls.query([('page_token', token)])}")
        return self._ask(lambda answer: (answer.body, answer.headers.get("next-page-token")), request)

    def export(self, job: str) -> Iterator[bytes]:
        """The result of an `export` job that is done: lines of JSON in the order of names, in chunks. If the job was a
        `reset`, `delete` or `expire`, and has ended: what each counter had `before`.
        """
        token: str | None = ""
        while token is not None:
            lines, token = self.export_chunk(job, token)
            yield lines

    def receipt(self, receipt: str) -> str:
        """The state of an increment: pending, applied, dead-lettered or unknown."""
        flaw = None if receipt and receipt.isascii() else "is what the answer to a POST said it is"
        calls.check("a receipt", "receipt", flaw)
        path = f"/v1/receipts/{quote(receipt, safe='')}"
        return self._ask(lambda answer: str(answer.object["state"]), calls.request("GET", path))

    def _change(self, method: str, path: str, body: Any, key: str | None) -> Changed:
        sent_as = calls.mint() if key is None else key
        request = calls.request(method, path, body, calls.header_of_key(sent_as, 0))
        return self._ask(lambda answer: Changed.of(answer.object, sent_as), request, sent_as)

    def _count(self, request: Request, sent_as: str, wait: float | None) -> Accepted:
        longest = min(wait or 0.0, calls.LONGEST_WAIT)
        return self._ask(lambda answer: Accepted.of(answer.object, sent_as), request, sent_as, longest)

    def _read(self, read: Callable[[Answer], T], path: str, patience: float | None = None) -> T:
        patience = calls.READ_PATIENCE if patience is None else patience
        return self._ask(read, calls.request("GET", path), patience=patience)

    def _ask(
        self,
        read: Callable[[Answer], T],
        request: Request,
        id_: str | None = None,
        wait: float = 0.0,
        patience: float = PATIENCE,
    ) -> T:
        """Repeat the request until there is an answer to `read`, or the patience is over. `id_`: the id or key under
        which it is safe to send again. `wait`: seconds that the service may take in addition.
        """
        self._check_that_it_can_be_asked()
        until = now() + self._patient(patience) + wait
        retries = Retries()
        maybe_accepted = False
        while True:
            one_try = wait + min(ONE_TRY, max(until - wait - now(), SHORTEST_TRY))
            try:
                answer = self._transport.attempt(request, one_try)
                break
            except RequestError as error:
                error.id = id_
                maybe_accepted = error.maybe_accepted = maybe_accepted or error.maybe_accepted
                if not isinstance(error, UnavailableError):
                    raise
                if not _may_try_again(self._transport, error, retries, until - now()):
                    raise
        try:
            return read(answer)
        except Exception as error:
            stranger = RejectedError(self._transport.stranger())
            stranger.id, stranger.maybe_accepted = id_, True
            raise stranger from error

    def _patient(self, usual: float) -> float:
        return usual if self._patience is None else self._patience

    def _check_that_it_can_be_asked(self) -> None:
        if not self._transport.can_be_asked:
            shown = self._transport.shown
            raise RejectedError(f"{shown} is a topic: count with incr, and ask the service for everything else")


def _check(*, url: object, key: object, patience: object, interval: object, most: object, tls: object) -> None:
    """Raise `ValueError` if one has the wrong type: it may come from a variable, or be an option of another client."""
    if not isinstance(url, str):
        raise ValueError(f"the URL must be text, not {url!r}")  # noqa: TRY004 (as for all that is wrong with options)
    if not (key is None or isinstance(key, str) or callable(key)):
        raise ValueError(f"the key must be text, or a function that returns it, not of the type {type(key).__name__}")
    for name, value in (("interval", interval), ("patience", 0 if patience is None else patience)):
        if not calls.is_duration(value):
            raise ValueError(f"the {name} must be a number of seconds, 0 or more, not {value!r}")
    if type(most) is not int or most < 1:
        raise ValueError(f"'most' must be a whole number, 1 or more, not {most!r}")
    if not (tls is None or isinstance(tls, ssl.SSLContext)):
        raise ValueError(f"'tls' must be an ssl.SSLContext, not {tls!r}")


def _counters(answer: Answer) -> list[Counter]:
    return [Counter.of(counter) for counter in answer.object["counters"]]


def _page(answer: Answer) -> Page:
    return Page(_counters(answer), answer.object.get("next_page_token"), bool(answer.object.get("exact", True)))


def _job(answer: Answer) -> JobStatus:
    return JobStatus.of(answer.object)


def _transport(
    url: str, key: str | Callable[[], str] | None, headers: Mapping[str, str], tls: ssl.SSLContext | None
) -> Transport:
    if not url.startswith("pubsub:"):
        if callable(key):
            transport = Transport(url, headers, tls, lambda: calls.header_of_caller(key()))
            transport.again = AGAIN | {UNAUTHORIZED}  # the next key may be valid
            return transport
        return Transport(url, {**calls.header_of_caller(key), **headers}, tls)
    if key is not None:
        raise ValueError("a topic takes no key: Pub/Sub uses Google's credentials")
    from countersink.pubsub import Topic  # noqa: PLC0415 (it needs packages that others need not install)

    return Topic(url, headers, tls)


def _joined(before: Accepted, part: Accepted, first: int) -> Accepted:
    """`first`: the index in the whole batch of this part's first item."""
    rejected = [replace(bad, item=bad.item + first) if isinstance(bad.item, int) else bad for bad in part.rejected]
    return Accepted(
        accepted=before.accepted + part.accepted,
        receipt=".".join(filter(None, (before.receipt, part.receipt))),
        id=before.id,
        rejected=(*before.rejected, *rejected),
        duplicates=before.duplicates + part.duplicates,
    )

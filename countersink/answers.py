"""The service's answers as objects, and the errors of requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple


class RequestError(Exception):
    """A request failed; the message says why."""

    def __init__(self, message: str, *, status: int | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The status of the last answer, if there was one."""
        self.field = field
        """The field that is wrong in the request, if the service named one."""
        self.retry_after = 0.0
        """Seconds that the service wants to be left alone."""
        self.counters: Sequence[str] = ()
        """The counters for which it is refused, if the service named them."""
        self.id: str | None = None
        """The id of the increment, or the key of the batch or change. The client makes one if you did not."""
        self.maybe_accepted = False
        """Whether the request may have been accepted all the same, because a try of it had no clear answer."""


class RejectedError(RequestError):
    """The service refuses this request and will refuse it again, or what answers is not Countersink."""


class UnavailableError(RequestError):
    """The service did not answer in time. The request may have been accepted: send it again with the same id."""

    def __init__(self, message: str, *, status: int | None = None, retry_after: float = 0.0) -> None:
        super().__init__(message, status=status)
        self.maybe_accepted = True
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter as the service reads it. `value` = `applied` + `pending`."""

    name: str
    value: int
    applied: int
    pending: int
    exact: bool
    as_of: datetime
    shards: int
    exists: bool
    generation: int = 0
    """It changes when the counter is set, reset or deleted, and not when it counts."""
    updated_at: datetime | None = None
    """When the applied part changed last; None if nothing was applied."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "Counter":
        """Fields that this version does not know are ignored."""
        known = {"generation": 0, "updated_at": None} | {name: answer[name] for name in cls.__slots__ if name in answer}
        updated = known["updated_at"] and datetime.fromisoformat(known["updated_at"])
        return cls(**known | {"as_of": datetime.fromisoformat(answer["as_of"]), "updated_at": updated})


@dataclass(frozen=True, slots=True)
class Point:
    """What was counted in one period."""

    begin: datetime
    count: int


@dataclass(frozen=True, slots=True)
class Series:
    """What was counted in each period of a range. Periods without a point have the count 0."""

    name: str
    by: str
    begin: datetime
    end: datetime
    """The end of the range, which is not part of it."""
    points: tuple[Point, ...]
    total: int
    """The sum of the points."""
    exact: bool
    """Whether each point has all that was accepted in its period, and those of periods that are over are final."""
    as_of: datetime

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "Series":
        begin, end, as_of = (datetime.fromisoformat(answer[name]) for name in ("from", "to", "as_of"))
        points = tuple(Point(datetime.fromisoformat(point["from"]), point["count"]) for point in answer["points"])
        return cls(answer["name"], answer["by"], begin, end, points, answer["total"], answer["exact"], as_of)


class Page(NamedTuple):
    """A page of a list of counters."""

    counters: Sequence[Counter]
    token: str | None
    """The token of the next page; None on the last one."""
    exact: bool
    """Whether no counter is missing that was counted before the request. If not, one that is not stored yet may be."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The result of setting, resetting or deleting a counter."""

    name: str
    before: int
    after: int
    key: str
    """Send the change again with this key and it still happens once; the answer is the first one."""

    @classmethod
    def of(cls, answer: Mapping[str, Any], key: str) -> "Changed":
        return cls(answer["name"], answer["before"], answer["after"], key)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job: one change to each counter under a prefix; and its progress."""

    id: str
    kind: str
    prefix: str
    delta: int | None
    """What an `add` job adds to each counter."""
    shards: int | None
    """The number of shards that a `compact` job leaves."""
    state: str
    """`running`, `done` or `failed`."""
    visited: int
    changed: int
    failed: int
    examples: tuple[tuple[str, str], ...]
    """Some of the counters that failed, and why."""
    tasks: int
    open: int
    depth: int
    share: float
    """The approximate progress, from 0 to 1."""
    started: datetime
    finished: datetime | None
    reason: str | None
    """Why it failed."""
    sees_pending: bool = False
    """Whether it visits counters whose increments are all still pending."""
    by: str | None = None
    """The periods, if it exports counts by time: `minute`, `hour` or `day`."""
    begin: datetime | None = None
    """Where their range begins; None if the request named no beginning."""
    end: datetime | None = None
    days: int | None = None
    """For how many days a counter that an `expire` job deletes was not changed."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "JobStatus":
        names = {"begin": "from", "end": "to"}
        known = {"delta": None, "shards": None} | {name: answer[name] for name in cls.__slots__ if name in answer}
        known["examples"] = tuple((one["counter"], one["reason"]) for one in answer["examples"])
        for name in ("started", "finished", "begin", "end"):
            when = answer.get(names.get(name, name))
            known[name] = datetime.fromisoformat(when) if when else None
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Rejected:
    """An item of a batch that was not accepted: its index, or its counter if the batch was given by name."""

    item: int | str
    reason: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the service accepted of a batch."""

    accepted: int
    receipt: str
    id: str
    """Send the batch again with this key, and nothing is counted twice."""
    rejected: tuple[Rejected, ...] = ()
    """The items that were not accepted: the first 100 of each thousand."""
    value: int | None = None
    """The total, if it was asked for, or waited for, and came in time."""
    exact: bool | None = None
    """Whether `value` includes all that was accepted before, if it was asked for."""
    duplicates: int = 0
    """How many of the accepted are known to have counted once already, perhaps by an earlier try of the same call. With
    `wait`, all are known that have come to the store in time.
    """

    @classmethod
    def of(cls, answer: Mapping[str, Any], sent_as: str) -> "Accepted":
        rejected = [Rejected(bad.get("index", bad.get("counter")), bad["reason"]) for bad in answer.get("rejected", ())]
        return cls(
            answer["accepted"],
            answer["receipt"],
            sent_as,
            tuple(rejected),
            answer.get("value"),
            answer.get("exact"),
            answer.get("duplicates", int(answer.get("duplicate", False))),
        )

"""What the service answers, as objects; and the errors of a request."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.model.errors import CountersinkError


class RequestError(CountersinkError):
    """A request did not get what it asked for; the message says why."""

    def __init__(self, message: str, *, status: int | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        """Of the last answer, if there was one."""
        self.field = field
        """What is wrong in the request, where the service named it."""


class RejectedError(RequestError):
    """The service refuses this request and will refuse it again: change it."""


class UnavailableError(RequestError):
    """No promise came in time: it may count or not. Under the same id it is safe to send again."""

    id: str | None = None
    """The id of the increment, or the key of the batch or of the change, also where it was made for you."""


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

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "Counter":
        """A later version of the service may say more: that is left out."""
        return cls(
            name=answer["name"],
            value=answer["value"],
            applied=answer["applied"],
            pending=answer["pending"],
            exact=answer["exact"],
            as_of=datetime.fromisoformat(answer["as_of"]),
            shards=answer["shards"],
            exists=answer["exists"],
        )


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of a counter that was set, reset or deleted."""

    name: str
    before: int
    after: int
    key: str
    """Under which it is safe to send again: the first time counts, and is answered."""

    @classmethod
    def of(cls, answer: Mapping[str, Any], key: str) -> "Changed":
        return cls(answer["name"], answer["before"], answer["after"], key)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Something that is done to each counter under a prefix, once; and how far it is."""

    id: str
    kind: str
    prefix: str
    delta: int | None
    """What an `add` adds."""
    shards: int | None
    """How many a `compact` leaves."""
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
    """From 0 to 1, about."""
    started: datetime
    finished: datetime | None
    reason: str | None
    """Why it failed."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "JobStatus":
        known = {name: answer[name] for name in cls.__slots__ if name in answer}
        finished = answer["finished"]
        return cls(
            **known
            | {
                "delta": answer.get("delta"),
                "shards": answer.get("shards"),
                "examples": tuple((one["counter"], one["reason"]) for one in answer["examples"]),
                "started": datetime.fromisoformat(answer["started"]),
                "finished": datetime.fromisoformat(finished) if finished else None,
            }
        )


@dataclass(frozen=True, slots=True)
class Rejected:
    """An item of a batch that does not count: its index, or its counter where they were given by name."""

    item: int | str
    reason: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """A promise that so many increments count."""

    accepted: int
    receipt: str
    id: str
    """Under which it is safe to send again."""
    rejected: tuple[Rejected, ...] = ()
    value: int | None = None
    """The total, where it was waited for and came in time."""

    @classmethod
    def of(cls, answer: Mapping[str, Any], sent_as: str) -> "Accepted":
        rejected = [Rejected(bad.get("index", bad.get("counter")), bad["reason"]) for bad in answer.get("rejected", ())]
        return cls(answer["accepted"], answer["receipt"], sent_as, tuple(rejected), answer.get("value"))

"""The words of jobs, each divided into tasks; and how owners of keys share them: how many run, how many exports
are kept. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final, NamedTuple

import orjson

from shared.model.buckets import DAY, HOUR, NEVER, Millis, StoreMillis, WallMillis, written_at, written_millis
from shared.model.errors import NewerError, ShareError, UnreadableError, amount
from shared.model.ranges import Range
from shared.model.receipts import key_of_change, key_of_visit
from shared.model.words import MAX_NAME_BYTES, flaw_of_size

ADD: Final = "add"
RESET: Final = "reset"
DELETE: Final = "delete"
EXPORT: Final = "export"
COMPACT: Final = "compact"
EXPIRE: Final = "expire"
KINDS: Final = (ADD, RESET, DELETE, EXPORT, COMPACT, EXPIRE)
EXACT: Final = (RESET, DELETE, EXPORT, EXPIRE)
"""The kinds that must read counters exactly."""
TELL_BEFORE: Final = (RESET, DELETE, EXPIRE)
"""The kinds that keep the value of each counter before the change. The receipts of the changes keep it."""
NUMBERS: Final = {ADD: "delta", COMPACT: "shards", EXPIRE: "days"}
"""The name of the number that comes with some kinds."""
RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
FORGOTTEN: Final = "it is so old that it is being deleted"
STOPPED: Final = "somebody stopped it; changes that were made stay"
DELETED: Final = "somebody deleted it, and its result"
ALL: Final = 2**60
"""The share of the whole job."""
MOST_EXAMPLES: Final = 3
"""Failed counters that a task's record, or a stored progress, names at most."""
LONGEST_ID: Final = 100
EXPORTS_LIVE: Final = Millis(8 * DAY)
_SIGNS: Final = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.")


def flaw_of_job(value: object) -> str | None:
    """Why this can't be a job's id; None if it can. Ids are part of paths and keys."""
    if type(value) is not str:
        return "must be a string"
    if not 1 <= len(value) <= LONGEST_ID or not _SIGNS.issuperset(value) or not value[0].isalnum():
        return f"must be 1 to {LONGEST_ID} letters, digits, '-', '_' or '.', the first a letter or a digit"
    return None


def flaw_of_prefix(value: object) -> str | None:
    """Why this can't be a prefix; None if it can. The empty prefix means all counters."""
    return flaw_of_size(value, MAX_NAME_BYTES)


class Span(NamedTuple):
    """Counts by time that an export is asked for: periods of this length that begin in the range, which may be open."""

    by: str
    begin: WallMillis | None = None
    end: WallMillis | None = None


def span_fields(span: Span | None) -> dict[str, str | None]:
    """The fields in JSON: none if there is no span."""
    if span is None:
        return {}
    begin, end = [None if when is None else written_millis(when) for when in span[1:]]
    return {"by": span.by, "from": begin, "to": end}


def span_text(span: Span | None) -> str:
    return "" if span is None else orjson.dumps([*span]).decode()


def span_of(text: str) -> Span | None:
    return Span(*orjson.loads(text)) if text else None


class Job(NamedTuple):
    """A change to make once to each counter under the prefix."""

    id: str
    kind: str
    prefix: str
    number: int = 0
    """See `NUMBERS`. Stores call it `delta`: the first kind was `add`."""
    created: WallMillis = 0
    """When a process started it."""
    expires: StoreMillis = NEVER
    """When the job is deleted. All its receipts have expired then, so its id can be reused."""
    span: Span | None = None
    """The counts by time that an export has; None if it has totals alone."""

    def asks(self, kind: str, prefix: str, number: int, span: Span | None = None) -> bool:
        return (self.kind, self.prefix, self.number, self.span) == (kind, prefix, number, span)

    def taken(self) -> str:
        """The message if another job was asked for under this id."""
        number = f" with {NUMBERS[self.kind]} {self.number}" if self.kind in NUMBERS else ""
        by = "".join(f", {name} {its}" for name, its in span_fields(self.span).items() if its is not None)
        return f"the id {self.id!r} belongs to another job: {self.kind} under the prefix {self.prefix!r}{number}{by}"

    def unused_since(self) -> WallMillis | None:
        """The instant since which a counter must not have been changed, if the job deletes only those."""
        return self.created - self.number * DAY if self.kind == EXPIRE else None

    def receipt_of(self, counter: str) -> str:
        """The receipt key of its change to this counter."""
        return (key_of_change if self.kind in TELL_BEFORE else key_of_visit)(self.id, counter)

    def receipts_expire(self) -> StoreMillis:
        """When all its receipts expire. The settings at the start of the job decide."""
        return StoreMillis(self.expires - DAY)

    def until(self) -> StoreMillis:
        """The last time at which its changes may be made: all receipts still exist then."""
        return StoreMillis(self.receipts_expire() - HOUR)


def lifetime_of_job(kind: str, receipts_live: Millis) -> Millis:
    """How long until a job is deleted.

    Exports are large, so they live for a fixed time. Other jobs live a day longer than their receipts, which some
    servers delete late.
    """
    return EXPORTS_LIVE if kind == EXPORT else Millis(receipts_live + DAY)


class ExpireRule(NamedTuple):
    """Counters under the prefix are deleted each day that were not changed for this many days."""

    prefix: str
    days: int


class Task(NamedTuple):
    """One range of a job: visit one page of it, and split the rest."""

    job: str
    range: Range = Range()
    share: int = ALL
    """The estimated share of the job: each of two parts gets half."""
    again: bool = False
    """Whether to go through the whole job once more, as tasks may be lost. Done tasks lead to their children."""


class Progress(NamedTuple):
    """The summed results of a job's tasks, or of one task."""

    tasks: int = 0
    visited: int = 0
    changed: int = 0
    failed: int = 0
    depth: int = 0
    """The longest chain of tasks that had to run one after the other."""
    share: int = 0
    """The done share of `ALL`."""
    examples: tuple[tuple[str, str], ...] = ()
    """Some counters that failed, with the reasons."""

    def plus(self, other: "Progress") -> "Progress":
        return Progress(
            self.tasks + other.tasks,
            self.visited + other.visited,
            self.changed + other.changed,
            self.failed + other.failed,
            max(self.depth, other.depth),
            self.share + other.share,
            (self.examples + other.examples)[:MOST_EXAMPLES],
        )


@dataclass(frozen=True, slots=True)
class Done:
    """The recorded result of a task."""

    task: Task
    progress: Progress
    """The results of this task alone."""
    children: Sequence[Task] = ()
    """The tasks for the rest of its range."""
    chunk: bytes = b""
    """The lines that it exported."""

    @property
    def opens(self) -> int:
        """The change in the number of open tasks: its children are open, itself no longer."""
        return len(self.children) - 1


@dataclass(frozen=True, slots=True)
class JobState:
    """A job and its progress."""

    job: Job
    open: int
    """Tasks that are not done. It is 0 only if that was true at one instant: then the job is finished."""
    progress: Progress = field(default_factory=Progress)
    state: str = RUNNING
    finished: WallMillis = 0
    """0 while it runs."""
    why: str = ""
    """Why it failed; empty if it did not."""


def divided(task: Task, parts: Sequence[Range]) -> tuple[list[Task], int]:
    """The tasks for these parts of its range, and the share that the task itself stands for."""
    share = task.share // len(parts) if parts else 0
    return [Task(task.job, part, share, task.again) for part in parts], task.share - share * len(parts)


def written(task: Task) -> bytes:
    return orjson.dumps({"job": task.job, "share": task.share, "again": task.again, **task.range._asdict()})


VERSION: Final = 1
"""The version of tasks as messages. If their meaning changes, write another one as `version`; missing means 1."""


def read(data: bytes) -> Task:
    """Read a message. Raises `UnreadableError` if it is not a task, `NewerError` if it has another version."""
    try:
        said: Mapping[str, Any] = orjson.loads(data)
        if said.get("version", VERSION) != VERSION:
            raise NewerError(f"a task of version {said['version']!r}, this process knows {VERSION}: run newer flushers")
        range_ = Range(str(said["after"]), said["until"] and str(said["until"]), int(said["depth"]))
        return Task(str(said["job"]), range_, int(said["share"]), bool(said["again"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableError(f"this is not a task: {error!r}") from error


class Lease(NamedTuple):
    """A task that is handed out."""

    token: str
    """Names the lease. A later lease of the same task has another token."""
    data: bytes
    """The task, as `written` wrote it, here or in a newer process."""

    @property
    def task(self) -> Task:
        """The task. Raises `NewerError` or `UnreadableError` if this process can't read it."""
        return read(self.data)


def noted(done: Done) -> bytes:
    """The record that a store keeps, without the chunk. Each child ends where the next one begins."""
    return orjson.dumps(
        {
            "task": orjson.Fragment(written(done.task)),
            "progress": [*done.progress],
            "begins": [child.range.after for child in done.children],
            "share": done.children[0].share if done.children else 0,
        }
    )


def recalled(note: bytes, chunk: bytes = b"") -> Done:
    """The result that `noted` wrote down."""
    said: Mapping[str, Any] = orjson.loads(note)
    raw = said["task"]
    task = Task(raw["job"], Range(raw["after"], raw["until"], raw["depth"]), raw["share"], raw["again"])
    begins = said["begins"]
    ends = [*begins[1:], task.range.until]
    children = [
        Task(task.job, Range(begin, end, task.range.depth + 1), said["share"])
        for begin, end in zip(begins, ends, strict=False)
    ]
    *numbers, examples = said["progress"]
    return Done(task, Progress._make((*numbers, tuple(map(tuple, examples)))), children, chunk)


def said(standing: JobState, *, sees_pending: bool) -> dict[str, Any]:
    """The JSON that the service answers."""
    job, progress = standing.job, standing.progress
    answer: dict[str, Any] = {"id": job.id, "kind": job.kind, "prefix": job.prefix}
    if job.kind in NUMBERS:
        answer[NUMBERS[job.kind]] = job.number
    return (
        answer
        | span_fields(job.span)
        | {
            "state": standing.state,
            "visited": progress.visited,
            "changed": progress.changed,
            "failed": progress.failed,
            "examples": [{"counter": counter, "reason": reason} for counter, reason in progress.examples],
            "tasks": progress.tasks,
            "open": standing.open,
            "depth": progress.depth,
            "share": 1.0 if standing.state == DONE else progress.share / ALL,
            "started": written_at(job.created / 1000),
            "finished": written_at(standing.finished / 1000) if standing.finished else None,
            "reason": standing.why or None,
            "sees_pending": sees_pending,
        }
    )


# How owners of keys share jobs: how many may run, and how many exports are kept. Each owner has a fixed part. It could
# not rely on a part of what is left (`Shares`), as exports are kept for days. Pure.


MOST_RUNNING: Final = 10
"""Jobs of one owner that may run at once."""
PARTS: Final = 4
"""An owner may have one of this many parts of the room for exports."""
RETRY: Final = 10.0
"""Seconds until it is worth to look again whether a job has ended."""
_HOUR: Final = 3_600
_DAY: Final = 86_400
EXPORTS: Final = ("export", "exports")
BYTES_OF_EXPORTS: Final = ("byte of exports", "bytes of exports")


def owner_of(job: str) -> str:
    """The owner in a stored id of a job; empty if it has none. Neither an owner nor an id has a slash."""
    return job.rpartition("/")[0]


def sharers_of(job: str) -> Sequence[str]:
    """The sharers whose room the job takes: everybody, as an empty string, and its owner."""
    owner = owner_of(job)
    return ("", owner) if owner else ("",)


def bounds_of(owner: str) -> tuple[str, str]:
    """The stored ids of an owner's jobs, or of all jobs: from the first string on, and before the second one."""
    return (f"{owner}/", f"{owner}0") if owner else ("", "~")


def share_of(owner: str, most: int) -> int:
    """How much of a room of `most` an owner may have."""
    return max(most // PARTS, 1) if owner else most


def check_running(owner: str, running: int) -> None:
    """Raise `ShareError` if an owner with this many running jobs may not start another one."""
    if owner and running >= MOST_RUNNING:
        raise ShareError(
            f"{running} jobs of the owner {owner!r} are running, and {MOST_RUNNING} may run at once: wait until one has"
            " ended, or stop one (DELETE /v1/jobs/{id})",
            RETRY,
        )


def check_exports(
    owner: str, setting: str, most: int, kept: int, *, left: float, unit: tuple[str, str] = EXPORTS
) -> None:
    """Raise `ShareError` if there is no room for another export. The setting allows `most`, and `kept` are kept of the
    owner, or of all. The first of these expires in `left` seconds.
    """
    share = share_of(owner, most)
    if kept >= share:
        allows = f"COUNTERSINK_{setting} allows {amount(most, *unit)}"
        if owner:
            allows += f", the owner {owner!r} may have {share:,} of them"
        time = amount(round(left / _DAY), "day") if left > 2 * _DAY else amount(ceil(left / _HOUR), "hour")
        raise ShareError(
            f"{allows}, and {kept:,} {'is' if kept == 1 else 'are'} kept: delete exports that you have read (DELETE"
            f" /v1/jobs/{{id}}), or wait until the oldest one expires, in {time}",
            max(left, 1.0),
        )

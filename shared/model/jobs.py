"""The words of jobs: what visits all counters under a prefix, its tasks, and what has become of it. Pure.

A task is a range of names. Two tasks of a job never begin at the same place, so that is what names them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

from shared.model.errors import NewerError, UnreadableError
from shared.model.ranges import Range
from shared.model.receipts import DAY, HOUR, key_of_visit
from shared.model.words import MAX_NAME_BYTES

ADD: Final = "add"
RESET: Final = "reset"
DELETE: Final = "delete"
EXPORT: Final = "export"
COMPACT: Final = "compact"
KINDS: Final = (ADD, RESET, DELETE, EXPORT, COMPACT)
EXACT: Final = (RESET, DELETE, EXPORT)
"""Those that have to read counters exactly."""
NUMBERS: Final = {ADD: "delta", COMPACT: "shards"}
"""What comes with those kinds that a number comes with."""
RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
FORGOTTEN: Final = "it is so old that it is being forgotten"
STOPPED: Final = "somebody stopped it; what is done stays"
ALL: Final = 2**60
"""The share of a whole job."""
MOST_EXAMPLES: Final = 3
"""Counters that failed and are named, of a task and in one place where progress is kept."""
LONGEST_ID: Final = 100
EXPORTS_LIVE: Final = 8 * DAY
_SIGNS: Final = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.")


def flaw_of_job(value: object) -> str | None:
    """Why this can't be the id of a job; None if it can. It stands in paths and in keys."""
    if type(value) is not str:
        return "must be a string"
    if not 1 <= len(value) <= LONGEST_ID or not _SIGNS.issuperset(value) or not value[0].isalnum():
        return f"must be 1 to {LONGEST_ID} letters, digits, '-', '_' or '.', the first a letter or a digit"
    return None


def flaw_of_prefix(value: object) -> str | None:
    """Why no counter can begin so; None if one can. An empty one is that of all."""
    if type(value) is not str:
        return "must be a string"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "must be valid Unicode: it holds a lone surrogate"
    if size > MAX_NAME_BYTES:
        return f"must be at most {MAX_NAME_BYTES} bytes of UTF-8, is {size}"
    return None


class Job(NamedTuple):
    """What is to be done to each counter under the prefix, once."""

    id: str
    kind: str
    prefix: str
    number: int = 0
    """See `NUMBERS`. Stores call it `delta`, as it was that of an add before there were others."""
    created: int = 0
    """Milliseconds since 1970, for people: by the clock of whoever asked for it."""
    expires: int = 0
    """It is forgotten then, by the store's time, and its id can be used again: no receipt of it is there any more."""

    def asks(self, kind: str, prefix: str, number: int) -> bool:
        """Whether it is for just this."""
        return (self.kind, self.prefix, self.number) == (kind, prefix, number)

    def taken(self) -> str:
        """What is wrong where another was asked for under its id."""
        number = f" with {NUMBERS[self.kind]} {self.number}" if self.kind in NUMBERS else ""
        return f"there is another job called {self.id!r}: {self.kind} under the prefix {self.prefix!r}{number}"

    def receipt_of(self, counter: str) -> str:
        """The key of what it does to this one."""
        return key_of_visit(self.id, counter)

    def receipts_expire(self) -> int:
        """All of them at once, whoever makes them and when, so that they go by one setting: that of the start."""
        return self.expires - DAY

    def until(self) -> int:
        """The last time of the store at which something may be done for it: all its receipts are still there."""
        return self.receipts_expire() - HOUR


def lifetime_of_job(kind: str, receipts_live: int) -> int:
    """Milliseconds. What an export has written is large; what the others did is forgotten a day after their receipts,
    which some servers delete late.
    """
    return EXPORTS_LIVE if kind == EXPORT else receipts_live + DAY


class Task(NamedTuple):
    """One range of a job: a page of it is to be visited, the rest to be split."""

    job: str
    range: Range = Range()
    share: int = ALL
    """Of the job, as far as anybody can guess: half of it for each of two parts."""
    again: bool = False
    """Somebody goes through all of the job once more, as tasks may have been lost: what was done before leads on."""


class Progress(NamedTuple):
    """What the tasks of a job, or one of them, have come to."""

    tasks: int = 0
    visited: int = 0
    """Counters."""
    changed: int = 0
    failed: int = 0
    depth: int = 0
    """The most tasks that had to be done one after another."""
    share: int = 0
    """Of `ALL`."""
    examples: tuple[tuple[str, str], ...] = ()
    """Some counters that failed, and why."""

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
    """What became of a task, as it is kept."""

    task: Task
    progress: Progress
    """Of this task alone."""
    children: Sequence[Task] = ()
    """What is left of its range."""
    chunk: bytes = b""
    """What it exports."""

    @property
    def opens(self) -> int:
        """How many more tasks are open with it than before: itself is not any more."""
        return len(self.children) - 1


@dataclass(frozen=True, slots=True)
class JobState:
    """A job and how far it is."""

    job: Job
    open: int
    """Tasks that are not done. 0 only if that was so at one instant: then the job is finished."""
    progress: Progress = field(default_factory=Progress)
    state: str = RUNNING
    finished: int = 0
    """Milliseconds since 1970; 0 while it runs."""
    why: str = ""
    """It failed."""


def divided(task: Task, parts: Sequence[Range]) -> tuple[list[Task], int]:
    """The tasks for these parts of its range, and the share that is done with it."""
    share = task.share // len(parts) if parts else 0
    return [Task(task.job, part, share, task.again) for part in parts], task.share - share * len(parts)


def written(task: Task) -> bytes:
    """As it travels."""
    return orjson.dumps({"job": task.job, "share": task.share, "again": task.again, **task.range._asdict()})


VERSION: Final = 1
"""Of tasks as they travel. Whoever changes their meaning writes another one as `version`; without it, it is 1."""


def read(data: bytes) -> Task:
    """`UnreadableError` if it is no task; `NewerError` if it is one of another version."""
    try:
        said: Mapping[str, Any] = orjson.loads(data)
        if said.get("version", VERSION) != VERSION:
            raise NewerError(f"a task of version {said['version']!r}, this process knows {VERSION}: run newer flushers")
        range_ = Range(str(said["after"]), said["until"] and str(said["until"]), int(said["depth"]))
        return Task(str(said["job"]), range_, int(said["share"]), bool(said["again"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableError(f"this is no task: {error!r}") from error


def noted(done: Done) -> bytes:
    """What a store keeps of it, apart from the chunk. Each child ends where the next one begins."""
    return orjson.dumps(
        {
            "task": orjson.Fragment(written(done.task)),
            "progress": [*done.progress],
            "begins": [child.range.after for child in done.children],
            "share": done.children[0].share if done.children else 0,
        }
    )


def recalled(note: bytes, chunk: bytes = b"") -> Done:
    """The same again."""
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


def said(standing: JobState) -> dict[str, Any]:
    """What the service answers."""
    job, progress = standing.job, standing.progress
    answer: dict[str, Any] = {"id": job.id, "kind": job.kind, "prefix": job.prefix}
    if job.kind in NUMBERS:
        answer[NUMBERS[job.kind]] = job.number
    return answer | {
        "state": standing.state,
        "visited": progress.visited,
        "changed": progress.changed,
        "failed": progress.failed,
        "examples": [{"counter": counter, "reason": reason} for counter, reason in progress.examples],
        "tasks": progress.tasks,
        "open": standing.open,
        "depth": progress.depth,
        "share": 1.0 if standing.state == DONE else progress.share / ALL,
        "started": _instant(job.created),
        "finished": _instant(standing.finished) if standing.finished else None,
        "reason": standing.why or None,
    }


def _instant(millis: int) -> str:
    text = datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"

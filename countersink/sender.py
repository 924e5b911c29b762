"""The thread that sends what was counted, divided into requests that keep their keys; what forks and the exit do
with it.
"""

import atexit
import json
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from countersink import interrupts
from countersink.answers import RejectedError, RequestError, UnavailableError
from countersink.calls import MOST_ITEMS, mint
from countersink.interrupts import Bell, Moment, is_ours, log, say, start
from countersink.rules import MAX_DELTA
from countersink.tally import CROWDED, YIELD, Keyed, Sum, Tally
from countersink.transport import ONE_TRY, TOO_MANY, Answer, Request, Retries, Transport, now

# Knows the clients of this process: after a fork they begin again, and at exit they send what they hold.


AT_EXIT: Final = 2.0
"""Seconds for all clients together."""


_known: "weakref.WeakSet[Sender]" = weakref.WeakSet()
_running: "set[Sender]" = set()
"""They are not collected while they may hold something."""

_finalized: list[Any] = []
"""The module that knows that it has to call us in children."""


def begin(one: "Sender") -> None:
    """It has something to send, from now on."""
    _running.add(one)
    # Children of multiprocessing, and of Celery's pool, end without calling what atexit has registered.
    if util := sys.modules.get("multiprocessing.util"):
        _finalize(util)
        if not _finalized:  # a child forgets what was registered before it begins its work, and then calls this
            util.register_after_fork(_at_exit, lambda _: _finalize(util))
            _finalized.append(util)
    if celery := sys.modules.get("celery.signals"):
        celery.worker_process_shutdown.connect(_at_exit, weak=False, dispatch_uid=__name__)


def _finalize(util: Any) -> None:
    util.Finalize(None, _at_exit, exitpriority=100)


def _at_exit(**_: object) -> None:
    until = time.monotonic() + AT_EXIT
    running = list(_running)
    for one in running:
        one.end_by(until)
    for one in running:
        one.close(max(until - time.monotonic(), 0.0))


def _forked() -> None:
    interrupts.forget_threads()
    _running.clear()
    for one in list(_known):
        one.forked()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


# Divides what was summed into requests. Each keeps its key and its bytes, however often it is sent.


LARGEST: Final = 256 * 1024
"""Bytes of a body, about. Proxies often refuse a megabyte."""
SHORTEST_PAUSE: Final = 0.1
"""Seconds until a batch that failed is tried again, while somebody waits or much is held."""


class Pause(NamedTuple):
    shortest: float
    """While somebody waits for it."""
    full: float


NONE: Final = Pause(0.0, 0.0)


def pause_of(retries: Retries, error: RequestError) -> Pause:
    """After this error, from now on."""
    now, delay = time.monotonic(), retries.delay(error)
    return Pause(now + max(error.retry_after, min(delay, SHORTEST_PAUSE)), now + delay)


class Batch:
    """Sums under a key of their own, or increments with ids. Both count once, however often they are sent."""

    def __init__(self, sums: Mapping[str, Sum], items: Mapping[Keyed, int]) -> None:
        self._sums = sums
        self._items = items
        self.doubtful = False
        """Whether it may have been accepted: an attempt had no clear answer. From then its key and its bytes stay."""
        self._made = now()
        self.turn = 0
        """When it was taken. Parts have that of the whole."""
        self.tries = 0
        self.retries = Retries()
        self.pause = NONE
        """When it may be tried again."""
        self._request: Request | None = None

    @property
    def request(self) -> Request:
        """The same one however often it is sent. It is kept without a `cached_property`, which locks on Python 3.11: a
        child that was forked meanwhile would wait for ever.
        """
        if self._request is None:
            self._request = self._as_request()
        return self._request

    def _as_request(self) -> Request:
        headers: dict[str, str] = {}
        content: Any
        if self._items:
            content = [item._asdict() for item in self._items]
        else:
            content = {"counters": {name: delta for name, (delta, _) in self._sums.items()}}
            headers["Idempotency-Key"] = mint()
        body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        return Request("POST", "/v1/increments", body, headers)

    @property
    def age(self) -> float:
        """Seconds."""
        return now() - self._made

    def __len__(self) -> int:
        return len(self._sums) + len(self._items)

    @property
    def calls(self) -> int:
        return sum(calls for _, calls in self._sums.values()) + sum(self._items.values())

    @property
    def divisible(self) -> bool:
        """Whether its parts may be sent instead: under new keys, or, where each increment has an id, as they are."""
        return len(self) > 1 and (bool(self._items) or not self.doubtful)

    def parts(self, refused: Collection[str] = ()) -> "list[Batch]":
        """The same in two, if it is `divisible`: what has these names, and the others; or halves. Each half has every
        second name, as bad ones often come together. Empty if there is nothing to divide.
        """
        if not self.divisible:
            return []
        names = {*refused} & {*self._sums, *(item.counter for item in self._items)}
        found: list[list[Any]] = [[], []]
        for number, (key, value) in enumerate((self._sums or self._items).items()):
            name = key.counter if isinstance(key, Keyed) else key
            found[name not in names if names else number % 2].append((key, value))
        return [self._part(dict(part)) for part in found] if all(found) else []

    def _part(self, part: dict[Any, Any]) -> "Batch":
        it = Batch({}, part) if self._items else Batch(part, {})
        it.doubtful, it.turn, it._made = self.doubtful, self.turn, self._made  # noqa: SLF001 (its own class)
        return it

    def rejected(self, answer: Answer) -> tuple[int, str]:
        """How many calls are in the items that the service did not accept, and why. Raises if it is no answer of
        Countersink's.
        """
        found = answer.object
        accepted, flaws = found["accepted"], found.get("rejected", ())
        if type(accepted) is not int:
            raise TypeError
        rest = dict(enumerate(self._entries()))
        calls = 0
        for flaw in flaws:
            number = flaw["index"] if "index" in flaw else _first(rest, flaw["counter"])
            calls += rest.pop(number)[2] if number is not None else 0
        # The answer names the first 100. The others are most likely refused for their deltas, which a key may limit.
        likely = sorted(rest.values(), key=lambda entry: (entry[1] >= 0, -abs(entry[1])))
        calls += sum(entry[2] for entry in likely[: max(found.get("rejected_count", 0) - len(flaws), 0)])
        return calls, str(flaws[0]["reason"]) if flaws else ""

    def _entries(self) -> "list[tuple[str, int, int]]":
        if self._items:
            return [(item.counter, item.delta, calls) for item, calls in self._items.items()]
        return [(name, delta, calls) for name, (delta, calls) in self._sums.items()]


def _first(rest: Mapping[int, tuple[str, int, int]], name: str) -> int | None:
    return next((number for number, entry in rest.items() if entry[0] == name), None)


def batches(sums: Mapping[str, Sum], items: Mapping[Keyed, int], rest: dict[str, Sum]) -> Iterator[Batch]:
    """All of it. What is left of sums that are too large for one batch comes into `rest`, with its share of calls."""
    for part in _parts(sums, len):
        for name, (delta, calls) in part.items():
            if not -MAX_DELTA <= delta <= MAX_DELTA:
                share = min(max(calls * MAX_DELTA // abs(delta), 1), calls)
                part[name] = (max(-MAX_DELTA, min(delta, MAX_DELTA)), share)
                rest[name] = (delta - part[name][0], calls - share)
        yield Batch(part, {})
    for part in _parts(items, lambda item: len(item.counter) + len(item.id)):
        yield Batch({}, part)


def _parts(all_of_it: Mapping[Any, Any], size_of: Any) -> Iterator[dict[Any, Any]]:
    part: dict[Any, Any] = {}
    size = 0
    for key, value in all_of_it.items():
        more = 4 * size_of(key) + 60  # characters have at most 4 bytes
        if part and (len(part) == MOST_ITEMS or size + more > LARGEST):
            yield part
            part, size = {}, 0
        part[key] = value
        size += more
    if part:
        yield part


OLDEST: Final = 7 * 86_400.0
"""Seconds after which a batch that may have been accepted is given up: the service forgets its key after 8 days."""
SPLIT: Final = frozenset({400, 403, 413, 422, TOO_MANY})
"""Statuses that may be about some names of a batch. Its parts are tried, so that the others count."""
MOST_REFUSALS: Final = 20
"""Refusals in a row after which it seems not to be about some names: parts of a batch then wait behind the others."""
MOMENT: Final = 0.02
"""Seconds until the thread looks again whether it may send something, while somebody waits."""
SEND_REST_WITHIN: Final = 30.0
"""Seconds to send the rest of a client that was forgotten, and not closed."""
GRACE: Final = 0.5
"""Seconds for the thread to end when its connections are closed."""
ASLEEP: Final = 0
CLOSED: Final = -1


class Sender:
    """Sends what a tally holds. The thread starts with the first increment, also after a fork, and sleeps while there
    is nothing to send.

    Callers only add to `flushes`, set the deadline, and ring. All else is the thread's own.
    """

    def __init__(self, tally: Tally, transport: Transport, interval: float) -> None:
        self._tally = tally
        self._transport = transport
        self._interval = interval
        self._deadline: float | None = None
        self._reset()
        _known.add(self)

    def _reset(self) -> None:
        closed = self._deadline is not None
        self.mark = CLOSED if closed else ASLEEP
        """`attend` has to be called when there are more events than this. Only the thread changes it."""
        self._started = False
        self._running = threading.Lock()
        """The thread takes it and keeps it: if two were started, one ends at once."""
        self._bell = Bell()
        self._flushes: set[Moment] = set()
        """Each comes when everything counted before is settled."""
        self._covered: dict[Moment, int] = {}
        """For each, the last turn in which any of that was taken."""
        self._turn = 0
        """How often everything was taken that was counted."""
        self._outgoing: deque[Batch] = deque()
        """A batch stays here until it is settled, also while it is sent. Those that failed come last."""
        self._retries = Retries()
        self._pause = NONE
        self._refusals = 0
        """Batches that were refused in a row when they were tried for the first time."""
        self._told: set[str] = set()
        self._telling = threading.Lock()
        self._all_sent = True
        self._ended = Moment()
        if closed:
            self._transport.closed.set()
            self._ended.set()

    def forked(self) -> None:
        """Forget everything in the child of a fork: the parent sends what it holds."""
        self._tally.clear()
        self._transport.forget()
        self._reset()

    def attend(self) -> None:
        """Called after an increment if there are more events than `mark`. It never waits and never raises."""
        if self.mark == CLOSED:
            self._tally.refuse("the client is closed")
            self._tell()
            return
        if self.mark == ASLEEP:
            self._wake()
        if len(self._tally.events) > CROWDED:
            self._tally.relieve(self._hasten)
        else:
            self._bell.ring()

    def flush(self, timeout: float) -> bool:
        """Send what was counted before, without waiting for more. Returns whether all of it was settled in time."""
        done = Moment()
        self._flushes.add(done)
        try:
            if not self._ended.is_set():
                self._wake()
                if not is_ours():
                    done.wait(timeout)
            return done.is_set() or self._ended.is_set()
        finally:
            self._flushes.discard(done)

    def close(self, timeout: float) -> bool:
        """Send the rest, for so long; drop what is left then. Returns whether nothing was left."""
        self.end_by(time.monotonic() + timeout)
        if is_ours():
            return self._ended.is_set() and self._all_sent
        if not self._ended.wait(timeout):
            self._transport.close()  # ends the attempt that the thread waits for
            if not self._ended.wait(GRACE):
                log(logging.WARNING, f"countersink ended while it waited for {self._transport.shown}")
                return False
        return self._all_sent

    def end_by(self, deadline: float) -> None:
        """Begin to end, without waiting for it."""
        if self._ended.is_set():
            return
        if self._deadline is None:
            self._deadline = deadline
        self._wake()
        if not self._started:
            self._run()  # no thread can start any more: the interpreter is ending

    def abandon(self) -> None:
        """Nobody has the client any more: send the rest, and end."""
        if self._started or self._tally.events:
            self.end_by(time.monotonic() + SEND_REST_WITHIN)
        else:
            self._transport.close()

    def _wake(self) -> None:
        if not self._started:
            begin(self)
            if not start(self._run):
                return
            self._started = True  # not before: if this thread is interrupted before, the next one does it
        self._bell.ring()

    def _run(self) -> None:
        if not self._running.acquire(blocking=False):
            return
        try:
            self.mark = self._many()
            self._wait()
            while self._round():
                pass
        except Exception as error:
            say(logging.WARNING, "countersink stops counting because of a bug", error)
        finally:
            self._end()

    def _round(self) -> bool:
        """Gather what was counted, and send it. Returns whether to continue."""
        flushes = list(self._flushes)
        self._gather()
        if self._over(self._pause) or not self._tally.held():
            self._take(flushes)
        while self._may_go_on() and (batch := self._next()) is not None:
            settled = self._send(batch)
            self._gather()
            if not settled and batch.tries > 1:
                break  # as others of those that failed may do
        self._settle()
        idle = not self._tally.events and not self._tally.held() and not self._outgoing
        if self._deadline is not None and (idle or not self._may_go_on()):
            return False
        if idle:
            self._sleep()
        self._wait()
        return True

    def _take(self, flushes: Iterable[Moment]) -> None:
        """Put the sums into batches, as many as there is room for."""
        room = self._tally.most - sum(map(len, self._outgoing))
        sums, items = self._tally.take(room)
        rest: dict[str, Sum] = {}
        found: list[Batch] = []
        for batch in batches(sums, items, rest):
            batch.turn = self._turn
            found.append(batch)
            time.sleep(YIELD)
        self._outgoing.extendleft(reversed(found))
        self._tally.put_back(rest)
        if not rest and (len(sums) + len(items) < room or not self._tally.held()):
            self._covered |= dict.fromkeys(flushes, self._turn)
            self._turn += 1

    def _next(self) -> Batch | None:
        """The next one that may be tried now."""
        if not self._over(self._pause):
            return None
        return next((batch for batch in self._outgoing if self._over(batch.pause)), None)

    def _gather(self) -> None:
        for _ in self._tally.fold_all():
            time.sleep(YIELD)  # lets other threads run
        self._tell()

    def _settle(self) -> None:
        """Tell those who flush that all of theirs is settled."""
        oldest = min((batch.turn for batch in self._outgoing), default=self._turn)
        for done, turn in list(self._covered.items()):
            if turn < oldest:
                del self._covered[done]
                self._flushes.discard(done)
                done.set()

    def _sleep(self) -> None:
        self.mark = ASLEEP
        if not self._tally.events and not self._flushes and self._deadline is None:
            self._bell.wait()
        self.mark = self._many()

    def _wait(self) -> None:
        begun = time.monotonic()
        while (rest := self._due(begun) - time.monotonic()) > 0:
            self._bell.wait(rest)
            if len(self._tally.events) > self.mark:
                self._gather()  # now it is known whether it is half full

    def _due(self, begun: float) -> float:
        """When the next round comes after a wait that began then. Increments may change it, and so may a flush."""
        waits = bool(self._outgoing) or not self._over(self._pause)
        if self._hurries():
            return begun + MOMENT * waits
        if self._is_half_full():
            return begun + SHORTEST_PAUSE * waits
        if self._outgoing:
            retry = max(self._pause.full, min(batch.pause.full for batch in self._outgoing))
            return max(min(begun + self._interval, retry), begun + SHORTEST_PAUSE)
        return begun + self._interval

    def _many(self) -> int:
        """Events that may make it half full, or crowd the list."""
        return max(min(CROWDED, self._tally.most // 2), 1)

    def _hasten(self) -> None:
        if self._is_half_full():
            self._bell.ring()

    def _is_half_full(self) -> bool:
        return 2 * self._tally.held() > self._tally.most

    def _hurries(self) -> bool:
        """Whether somebody flushes or closes."""
        return bool(self._flushes) or self._deadline is not None

    def _over(self, pause: Pause) -> bool:
        return time.monotonic() >= (pause.shortest if self._hurries() else pause.full)

    def _may_go_on(self) -> bool:
        return self._deadline is None or time.monotonic() < self._deadline

    def _send(self, batch: Batch) -> bool:
        """One attempt. Returns whether the batch is settled."""
        if batch.doubtful and batch.age > OLDEST:
            self._drop(batch, "for a week they have had no clear answer")
            return True
        batch.tries += 1
        seconds = ONE_TRY
        if self._deadline is not None:  # the others shall be tried, too
            rest = self._deadline - time.monotonic()
            seconds = min(ONE_TRY, max(rest / 2 if len(self._outgoing) > 1 else rest, 0.05))
        try:
            answer = self._transport.attempt(batch.request, seconds)
            calls, reason = batch.rejected(answer)
        except RequestError as error:
            refused = error.status is not None and 400 <= error.status < 500  # noqa: PLR2004 (the request is wrong)
            if (refused and isinstance(error, RejectedError)) or error.status == TOO_MANY:
                return self._refused(batch, error)
            self._failed(batch, error)
        except Exception:  # in reading the answer
            self._failed(batch, UnavailableError(self._transport.stranger()))
        else:
            self._retries, self._pause = Retries(), NONE
            self._refusals = 0
            self._outgoing.remove(batch)
            if calls:
                self._tally.drop(calls, reason, "rejected")
                self._tell()
            return True
        return False

    def _drop(self, batch: Batch, reason: str, kind: str = "") -> None:
        self._outgoing.remove(batch)
        self._tally.drop(batch.calls, reason, kind)
        self._tell()

    def _refused(self, batch: Batch, error: RequestError) -> bool:
        """The service will not take all of it, perhaps a part. Returns whether the batch is settled."""
        batch.doubtful |= error.maybe_accepted
        if batch.tries == 1 and not error.counters:
            self._refusals += 1
        all_of_it = self._refusals > MOST_REFUSALS
        parts = batch.parts(error.counters) if error.status in SPLIT else []
        if parts:
            self._outgoing.remove(batch)
            self._outgoing.extendleft(reversed(parts))
            for part in parts if all_of_it else ():
                self._later(part, error)
        elif error.status != TOO_MANY:
            self._drop(batch, str(error), f"refused with {error.status}")
        elif 2 * sum(map(len, self._outgoing)) > self._tally.most:
            self._drop(batch, f"too many increments wait that the service does not take: {error}", "refused with 429")
        else:
            self._later(batch, error)
        if all_of_it and error.status == TOO_MANY and batch.tries == 1:
            self._pause = pause_of(Retries(), error)
        return not parts and batch not in self._outgoing

    def _failed(self, batch: Batch, error: RequestError) -> None:
        """There is no clear answer. Perhaps the service is away."""
        batch.doubtful |= error.maybe_accepted or isinstance(error, RejectedError)
        self._later(batch, error)
        self._pause = pause_of(self._retries, error)

    def _later(self, batch: Batch, error: RequestError) -> None:
        """Let it wait behind the others."""
        say(logging.INFO, f"not counted yet: {error}")
        batch.tries = max(batch.tries, 1)
        batch.pause = pause_of(batch.retries, error)
        self._outgoing.remove(batch)
        self._outgoing.append(batch)

    def _end(self) -> None:
        """Drop what is left, and refuse what comes later."""
        try:
            self._gather()
            rest = [*self._outgoing, Batch(*self._tally.take())]
            self._outgoing.clear()
            calls = sum(batch.calls for batch in rest)
            self._all_sent = not calls
            if calls:
                them = "it" if calls == 1 else "them"
                self._tally.drop(calls, f"the client was closed before {self._transport.shown} accepted {them}")
        finally:
            self.mark = CLOSED
            while self._tally.events:
                self._tally.refuse("the client is closed")
            self._tell_all(GRACE)
            self._transport.close()
            self._ended.set()
            for done in list(self._flushes):
                done.set()
            _running.discard(self)

    def _tell(self) -> None:
        """Say that increments were dropped, once for each kind of reason."""
        if self._tally.drops.keys() - self._told and not start(self._tell_all):
            self._tell_all()

    def _tell_all(self, patience: float = 0.0) -> None:
        if not self._telling.acquire(timeout=patience):
            return  # another thread does
        try:
            for kind, (calls, reason) in list(self._tally.drops.items()):
                if kind not in self._told:
                    number = calls or self._tally.dropped
                    text = f"countersink dropped {number} increment{'s' * (number != 1)}: {reason}"
                    log(logging.WARNING, f"{text}. Later, only `dropped` of the client counts them")
                    self._told.add(kind)
        finally:
            self._telling.release()

"""The thread that sends what was counted: one batch at a time, each until it is accepted or refused."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Final

from countersink import lifetime
from countersink.answers import RejectedError, RequestError, UnavailableError
from countersink.batches import Batch, batches
from countersink.interrupts import Bell, Moment, log, say, start
from countersink.tally import CROWDED, YIELD, Tally
from countersink.transport import ONE_TRY, TOO_MANY, Retries, Transport

OLDEST: Final = 7 * 86_400.0
"""Seconds after which a batch that may have been accepted is given up: the service forgets its key after 8 days."""
SPLIT: Final = frozenset({400, 403, 413, 422})
"""Statuses that may be about one item of a batch. Its halves are tried, so that the others count."""
LIMIT: Final = "COUNTERSINK_MAX_COUNTERS"
"""Part of the 429 for a batch with a new name for which there is no room."""
MOST_REFUSALS: Final = 20
"""Refusals in a row after which batches are no longer split: it is not about one item."""
SHORTEST_PAUSE: Final = 0.1
"""Seconds between two attempts while somebody waits."""
PATIENCE: Final = 30.0
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
        lifetime.know(self)

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
        self._covered: list[Moment] = []
        """Those for which all of that is in the batches."""
        self._outgoing: deque[Batch] = deque()
        self._retries = Retries()
        self._refusals = 0
        self._others_first = False
        """Whether a batch waits for room for a new counter. Later increments must not wait for it."""
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
            self._tally.relieve()

    def flush(self, timeout: float) -> bool:
        """Send what was counted before, without waiting for more. Returns whether all of it was settled in time."""
        done = Moment()
        self._flushes.add(done)
        try:
            if not self._ended.is_set():
                self._wake()
                done.wait(timeout)
            return done.is_set() or self._ended.is_set()
        finally:
            self._flushes.discard(done)

    def close(self, timeout: float) -> bool:
        """Send the rest, for so long; drop what is left then. Returns whether nothing was left."""
        self.end_by(time.monotonic() + timeout)
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
            self.end_by(time.monotonic() + PATIENCE)
        else:
            self._transport.close()

    def _wake(self) -> None:
        if not self._started:
            lifetime.begin(self)
            if not start(self._run):
                return
            self._started = True  # not before: if this thread is interrupted before, the next one does it
        self._bell.ring()

    def _run(self) -> None:
        if not self._running.acquire(blocking=False):
            return
        try:
            while self._round():
                pass
        except Exception as error:
            say(logging.WARNING, "countersink stops counting because of a bug", error)
        finally:
            self._end()

    def _round(self) -> bool:
        """Gather what was counted, and send it. Returns whether to go on."""
        self.mark = CROWDED
        flushes = list(self._flushes)
        self._gather()
        if not self._outgoing or (self._others_first and sum(map(len, self._outgoing)) < self._tally.most):
            rest: dict[str, int] = {}
            for batch in batches(*self._tally.take(), rest):
                self._outgoing.append(batch)
                time.sleep(YIELD)
            self._tally.put_back(rest)
            if not rest:
                self._covered = flushes
        self._others_first = False
        while self._outgoing and self._may_go_on() and not self._others_first:
            self._send(self._outgoing.popleft())
            self._gather()
        if not self._outgoing:
            self._settle(self._covered)
        idle = not self._tally.events and not self._tally.held() and not self._outgoing
        if self._deadline is not None:
            return not idle and self._may_go_on()
        if idle:
            self._sleep()
        self._wait(time.monotonic() + self._interval)
        return True

    def _gather(self) -> None:
        for _ in self._tally.fold_all():
            time.sleep(YIELD)  # lets other threads run
        self._tell()

    def _settle(self, flushes: Iterable[Moment]) -> None:
        for done in flushes:
            self._flushes.discard(done)
            done.set()

    def _sleep(self) -> None:
        """Sleep until there is something to do."""
        self.mark = ASLEEP
        if not self._tally.events and not self._flushes and self._deadline is None:
            self._bell.wait()
        self.mark = CROWDED

    def _wait(self, until: float, *, hurry: bool = True) -> None:
        """Wait, with `hurry` only until somebody flushes or closes."""
        while not (hurry and (self._flushes or self._deadline is not None)):
            end = until if self._deadline is None else min(until, self._deadline)
            if (rest := end - time.monotonic()) <= 0:
                return
            self._bell.wait(rest)

    def _may_go_on(self) -> bool:
        return self._deadline is None or time.monotonic() < self._deadline

    def _send(self, batch: Batch) -> None:
        """One attempt. The batch is then settled, or waits with the others."""
        if batch.doubtful and batch.age > OLDEST:
            self._drop(batch.calls, "for a week they have had no clear answer")
            return
        rest = ONE_TRY if self._deadline is None else self._deadline - time.monotonic()
        try:
            answer = self._transport.attempt(batch.request, max(min(ONE_TRY, rest), 0.05))
            calls, reason = batch.rejected(answer)
        except RejectedError as error:
            if error.status is None or not 400 <= error.status < 500:  # noqa: PLR2004 (the request is wrong)
                self._later(batch, UnavailableError(str(error), status=error.status))
            else:
                self._refused(batch, error)
        except UnavailableError as error:
            self._later(batch, error)
        except (KeyError, IndexError, TypeError, ValueError):  # another program answers, such as a captive portal
            there, name = self._transport.shown, self._transport.name
            self._later(batch, UnavailableError(f"{there} does not answer as {name} does: is the URL right?"))
        else:
            self._retries = Retries()
            self._refusals = 0
            self._drop(calls, reason, "rejected")

    def _drop(self, calls: int, reason: str, kind: str = "") -> None:
        if calls:
            self._tally.drop(calls, reason, kind)
            self._tell()

    def _refused(self, batch: Batch, error: RequestError) -> None:
        """A 4xx: the service will not take it. Perhaps it takes a half."""
        batch.doubtful |= error.maybe_accepted
        self._refusals += 1
        if error.status in SPLIT and self._refusals < MOST_REFUSALS and batch.divisible:
            self._outgoing.extendleft(reversed(batch.halves()))
        else:
            self._drop(batch.calls, str(error), f"refused with {error.status}")

    def _later(self, batch: Batch, error: UnavailableError) -> None:
        """Wait, and try the others first: one batch must not keep them from being counted."""
        say(logging.INFO, f"not counted yet: {error}")
        now = time.monotonic()
        batch.doubtful |= error.maybe_accepted
        if error.status == TOO_MANY and LIMIT in str(error):
            self._others_first = True
            self._outgoing.extend(batch.halves() if batch.divisible else [batch])
        else:
            self._outgoing.append(batch)
        delay = self._retries.delay(error)
        self._wait(now + max(error.retry_after, min(delay, SHORTEST_PAUSE)), hurry=False)
        self._wait(now + delay)

    def _end(self) -> None:
        """Drop what is left, and refuse what comes later."""
        try:
            self._gather()
            rest = [*self._outgoing, *batches(*self._tally.take(last=True), {})]
            self._outgoing.clear()
            self._all_sent = not rest
            reason = f"the client was closed before {self._transport.shown} accepted them"
            for batch in rest:
                self._tally.drop(batch.calls, reason)
        finally:
            self.mark = CLOSED
            while self._tally.events:
                self._tally.refuse("the client is closed")
            self._tell_all(GRACE)
            self._transport.close()
            self._ended.set()
            self._settle(list(self._flushes))
            lifetime.end(self)

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
                    text = f"countersink dropped {number} increments: {reason}"
                    log(logging.WARNING, f"{text}. `dropped` of the client tells how many there are later")
                    self._told.add(kind)
        finally:
            self._telling.release()

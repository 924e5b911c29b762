"""The thread that sends what was counted: one batch at a time, each until it is accepted or refused."""

import _thread
import contextlib
import logging
import threading
import time
from collections import deque
from typing import Final

from countersink import lifetime
from countersink.answers import RejectedError, RequestError, UnavailableError
from countersink.batches import Batch, batches
from countersink.tally import CROWDED, Tally
from countersink.transport import ONE_TRY, Retries, Transport

_log: Final = logging.getLogger("countersink")
OLDEST: Final = 7 * 86_400.0
"""Seconds after which a batch that may have been accepted is given up: the service forgets its key after 8 days."""
SPLIT: Final = frozenset({400, 403, 413, 422})
"""Statuses that may be about one item of a batch. Its halves are tried, so that the others count."""
LIMIT: Final = "COUNTERSINK_MAX_COUNTERS"
"""Part of the 429 for a batch with a new name for which there is no room."""
MOST_REFUSALS: Final = 20
"""Refusals in a row after which batches are no longer split: it is not about one item."""
TOO_MANY: Final = 429
"""The status of a batch that was surely not accepted, and may be later."""
SHORTEST_PAUSE: Final = 0.1
"""Seconds between two attempts while somebody waits."""
PATIENCE: Final = 30.0
"""Seconds to send the rest of a client that was forgotten, and not closed."""
GRACE: Final = 0.5
"""Seconds for the thread to end when its connections are closed."""
YIELD: Final = 50e-6
"""Seconds in which a caller gets the interpreter's lock. With `sleep(0)` this thread has it again before they wake."""
ASLEEP: Final = 0


class Sender:
    """Sends what a tally holds. The thread starts with the first increment, also after a fork, and sleeps while there
    is nothing to send.
    """

    def __init__(self, tally: Tally, transport: Transport, interval: float) -> None:
        self._tally = tally
        self._transport = transport
        self._interval = interval
        self._deadline: float | None = None
        self._reset()
        lifetime.know(self)

    def _reset(self) -> None:
        self.mark = ASLEEP
        """`attend` has to be called when there are more events than this."""
        self._started = threading.Lock()
        self._bell = threading.Lock()
        self._bell.acquire()  # whoever rings releases it
        self._ended = threading.Event()
        self._flushes: list[threading.Event] = []
        self._outgoing: deque[Batch] = deque()
        self._retries = Retries()
        self._refusals = 0
        self._others_first = False
        """Whether a batch waits for room for a new counter. Later increments must not wait for it."""
        self._told = False
        self._all_sent = True

    def forked(self) -> None:
        """In the child of a fork: what the parent holds, the parent sends."""
        self._tally.clear()
        self._transport.forget()
        self._reset()
        if self._deadline is not None:
            self._transport.closed.set()

    def attend(self) -> None:
        """Called after an increment if there are more than `mark`. It never waits and never raises."""
        try:
            if self._deadline is not None:
                self._refuse()
            elif self.mark == ASLEEP:
                self.mark = CROWDED
                self._wake()
            else:
                self._tally.help()
                if not self._started.locked():  # no thread could start
                    self._wake()
        except Exception:  # a program does not fail because it can't count
            _log.debug("an increment met a bug", exc_info=True)

    def flush(self, timeout: float) -> bool:
        """Send what was counted before, without waiting for more. Returns whether all of it was settled in time."""
        if self._deadline is not None:
            return self._ended.wait(timeout)
        done = threading.Event()
        self._flushes.append(done)
        self._wake()
        settled = done.wait(timeout)
        with contextlib.suppress(ValueError):
            self._flushes.remove(done)
        return settled

    def close(self, timeout: float) -> bool:
        """Send the rest, for so long; drop what is left then. Returns whether nothing was left."""
        self.end_by(time.monotonic() + timeout)
        if not self._ended.wait(timeout):
            self._transport.close()  # ends the attempt that the thread waits for
            if not self._ended.wait(GRACE):
                _log.warning("countersink ended while it waited for %s", self._transport.shown)
                return False
        return self._all_sent

    def end_by(self, deadline: float) -> None:
        """Begin to end, without waiting for it."""
        if self._deadline is None:
            self._deadline = deadline
        if self._started.acquire(blocking=False):
            self._run()  # nothing was counted, or no thread can start any more because the interpreter is ending
        else:
            self._ring()

    def abandon(self) -> None:
        """Nobody has the client any more: send the rest, and end."""
        self.end_by(time.monotonic() + PATIENCE)

    def _refuse(self) -> None:
        events = self._tally.events
        number = len(events)
        del events[:number]
        if number:
            self._tally.drop(number, "the client is closed")
            self._tell()

    def _wake(self) -> None:
        if not self._started.acquire(blocking=False):
            self._ring()
            return
        try:
            _thread.start_new_thread(self._run, ())  # threading.Thread would wait until it runs
        except RuntimeError:  # there are too many, or the interpreter is ending: `end_by` sends
            self._started.release()
        lifetime.begin(self)

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it rings already
            self._bell.release()

    def _run(self) -> None:
        try:
            while self._round():
                pass
            self._drop_rest()
        except Exception:
            _log.warning("countersink stops counting because of a bug", exc_info=True)
        finally:
            self._transport.close()
            self.mark = ASLEEP
            self._ended.set()
            lifetime.end(self)

    def _round(self) -> bool:
        """Gather what was counted, and send it. Returns whether to go on."""
        flushes = list(self._flushes)
        self._gather()
        if not self._outgoing or (self._others_first and sum(map(len, self._outgoing)) < self._tally.most):
            for batch in batches(self._tally):
                self._outgoing.append(batch)
                time.sleep(YIELD)
        self._others_first = False
        while self._outgoing and self._may_go_on() and not self._others_first:
            self._send(self._outgoing.popleft())
            self._gather()
        if not self._outgoing:
            for done in flushes:
                done.set()
                with contextlib.suppress(ValueError):  # its thread removes it, too
                    self._flushes.remove(done)
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

    def _sleep(self) -> None:
        """Until there is something to do."""
        self.mark = ASLEEP
        if not self._tally.events and not self._flushes and self._deadline is None:
            self._bell.acquire()
        self.mark = CROWDED

    def _wait(self, until: float, *, hurry: bool = True) -> None:
        """Wait, with `hurry` only until somebody flushes or closes."""
        while not (hurry and (self._flushes or self._deadline is not None)):
            end = until if self._deadline is None else min(until, self._deadline)
            if (rest := end - time.monotonic()) <= 0:
                return
            self._bell.acquire(timeout=rest)

    def _may_go_on(self) -> bool:
        return self._deadline is None or time.monotonic() < self._deadline

    def _send(self, batch: Batch) -> None:
        """One attempt. The batch is then settled, or waits with the others."""
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
            self._drop(calls, reason)

    def _drop(self, dropped: int, reason: str) -> None:
        if dropped:
            self._tally.drop(dropped, reason)
            self._tell()

    def _refused(self, batch: Batch, error: RequestError) -> None:
        """A 4xx: the service will not take it. Perhaps it takes a half."""
        self._refusals += 1
        splits = error.status in SPLIT and self._refusals < MOST_REFUSALS
        if splits and len(batch) > 1 and not batch.doubtful:
            self._outgoing.extendleft(reversed(batch.halves()))
        else:
            self._drop(batch.calls, str(error))

    def _later(self, batch: Batch, error: UnavailableError) -> None:
        """Wait, and try the others first: one batch must not keep them from being counted."""
        _log.info("not counted yet: %s", error)
        now = time.monotonic()
        if error.status != TOO_MANY:
            batch.doubtful = True
        if batch.doubtful and batch.age > OLDEST:
            self._drop(batch.calls, f"for a week: {error}")
        elif error.status == TOO_MANY and LIMIT in str(error):
            self._others_first = True
            self._outgoing.extend([batch] if batch.doubtful or len(batch) == 1 else batch.halves())
        else:
            self._outgoing.append(batch)
        delay = self._retries.delay(error)
        self._wait(now + max(error.retry_after, min(delay, SHORTEST_PAUSE)), hurry=False)
        self._wait(now + delay)

    def _drop_rest(self) -> None:
        self._gather()
        rest = [*self._outgoing, *batches(self._tally)]
        self._outgoing.clear()
        self._all_sent = not rest
        for batch in rest:
            self._drop(batch.calls, f"the client was closed before {self._transport.shown} accepted them")

    def _tell(self) -> None:
        """Say once that increments were dropped."""
        if self._tally.reason and not self._told:
            self._told = True
            _log.warning(
                "countersink dropped %d increments: %s. `dropped` of the client tells how many there are later",
                self._tally.dropped,
                self._tally.reason,
            )

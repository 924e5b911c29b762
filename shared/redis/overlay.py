"""The overlay of a fleet in Redis or Valkey: every process sees the entries of all, or knows that it does not."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

from shared.clock import Clock
from shared.errors import TransientError
from shared.ports import Store
from shared.redis import fleet_scripts as fleet
from shared.redis import scripts
from shared.redis.apart import PERIOD
from shared.redis.copy import Copy
from shared.redis.entries import Attempt
from shared.redis.epochs import GRACE, Epochs
from shared.redis.evidence import ALLOWANCE, Evidence
from shared.redis.flaws import flaws_of
from shared.redis.janitor import Janitor
from shared.redis.links import TIMEOUT, AwayError, Links
from shared.redis.member import Member
from shared.redis.server import Server
from shared.redis.views import Views
from shared.words import Envelope, View

_log = logging.getLogger(__name__)

LEASE: Final = 3.0
MOST_ENTRIES: Final = 300_000
MOST_WITHDRAWN: Final = 10_000
KEYS_AT_ONCE: Final = 500
MARKS: Final = 10
"""Intervals between two looks whether a new day has to be marked; the mark of yesterday will do as long."""


class RedisOverlay:
    """A `member` publishes; others only read, settle and report what they pull.

    Between `open` and `close` one task renews the lease, or looks for Redis while it is away; a member's second one
    marks in the store that the fleet is in use, since a store that hangs must not hold up the lease.
    """

    def __init__(
        self,
        url: str,
        space: str,
        store: Store,
        clock: Clock,
        *,
        member: bool,
        receipts_live: int,
        flusher_lease: float,
        lease: float = LEASE,
        period: float = PERIOD,
        grace: float = GRACE,
        timeout: float = TIMEOUT,
        most_entries: int = MOST_ENTRIES,
    ) -> None:
        """`space` names the fleet; `receipts_live` is in milliseconds, all else in seconds."""
        prefix = f"countersink:{space}:"
        self._clock = clock
        self._server = Server(url, prefix, Links(url, timeout))
        self._copy = Copy(most_entries)
        self._views = Views()
        epochs = Epochs(self._server, store, clock, prefix, lifetime=receipts_live, grace=grace)
        self._epochs = epochs
        self._member = (
            Member(self._server, store, clock, self._copy, epochs, lease=lease, period=period) if member else None
        )
        self._janitor = Janitor(self._server, store, clock, patience=lease, period=period)
        self._evidence = Evidence(flusher_lease + 10)
        self._flusher = uuid4().hex[:12]
        self._withdrawn: list[tuple[str, str]] = []
        self._interval = lease / 3
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Begin. Redis may be away; what is so is found out by the first step, which this waits for."""
        with contextlib.suppress(AwayError):
            await self._step()
        self._tasks.append(asyncio.create_task(self._run(), name="overlay in Redis"))
        if self._member is not None:
            self._tasks.append(asyncio.create_task(self._mark(self._member), name="marks of use"))

    async def close(self) -> None:
        """After the last block has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._janitor.close()
        if self._member is not None and self._server.up:
            with contextlib.suppress(TransientError):
                await self._flush_withdrawn()
                await self._member.leave()
        await self._server.close()

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        if self._server.up:
            names = [*dict.fromkeys(counters)]
            with contextlib.suppress(AwayError):
                return await self._view(names)
        return self._copy.view(counters)

    async def _view(self, names: Sequence[str]) -> Mapping[str, View]:
        """What is too much to be told is read here alone, and so is not exact."""
        question = self._views.question(names)
        reply = await self._server.ask(scripts.VIEW, *question.arguments())
        if reply[0] != b"ok":
            self._server.wake.set()
            raise AwayError("Redis is new")
        views = self._views.answer(question, reply, exact=self._complete())
        if len(views) == len(names):
            return views
        return views | self._copy.view([name for name in names if name not in views])

    def _complete(self) -> bool:
        """Whether all that this process has is in Redis."""
        return self._member is None or self._member.registered

    async def names(self, prefix: str) -> Sequence[str]:
        if self._server.up:
            first = b"[" + prefix.encode()
            with contextlib.suppress(AwayError):
                found = await self._server.plain("ZRANGEBYLEX", self._server.key("names"), first, first + b"\xff")
                return [name.decode() for name in found]
        return self._copy.names(prefix)

    async def holds(self, keys: Collection[str]) -> Collection[str]:
        asked = [*keys]
        if self._server.up and asked:
            with contextlib.suppress(AwayError):
                found = await self._server.ask(scripts.HOLDS, *asked)
                held = {key for key, there in zip(asked, found, strict=True) if there}
                return held if self._complete() else held | self._copy.holds(asked)
        return self._copy.holds(asked)

    @asynccontextmanager
    async def entered(self, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
        member = self._member
        if member is None:
            raise RuntimeError("only a member publishes")
        member.check()
        attempts = self._copy.add(envelopes, self._clock.monotonic())
        try:
            if member.registered and self._server.up:
                with contextlib.suppress(AwayError):  # then they are written late
                    await member.write(attempts, confirmed=False)
            yield
            await member.confirm(attempts)
        except BaseException as error:
            self._withdraw(attempts)
            if isinstance(error, Exception) and self._server.up:
                with contextlib.suppress(AwayError):
                    await self._flush_withdrawn()
            raise

    def _withdraw(self, attempts: Sequence[Attempt]) -> None:
        """Here at once; in Redis now or later. One that stays there is unconfirmed, so it adds to nothing."""
        for attempt in attempts:
            self._copy.withdraw(attempt)
            self._withdrawn += [(piece.key, piece.attempt) for piece in attempt.pieces]
        del self._withdrawn[:-MOST_WITHDRAWN]
        if self._server.up:
            self._server.wake.set()

    async def _flush_withdrawn(self) -> None:
        while self._withdrawn:
            some, self._withdrawn = self._withdrawn[:100], self._withdrawn[100:]
            try:
                await self._server.ask(scripts.WITHDRAW, *(part for pair in some for part in pair))
            except BaseException:
                self._withdrawn = some + self._withdrawn
                raise

    async def settle(self, applied: Collection[str], time: int) -> None:
        keys = [*applied]
        self._copy.settle(keys, time)
        while keys:
            done = await self._server.ask(scripts.SETTLE, time, *keys[:KEYS_AT_ONCE])
            del keys[:done]

    async def raise_floor(self, counter: str, time: int) -> None:
        self._copy.raise_floor(counter, time)
        await self._server.ask(scripts.RAISE, time, counter)

    async def unsettled(self, limit: int) -> Collection[str]:
        if self._server.up:
            with contextlib.suppress(AwayError):
                return [key.decode() for key in await self._server.ask(scripts.UNSETTLED, limit)]
        due = self._copy.due(self._clock.monotonic(), limit)
        return [piece.key for attempt in due for piece in attempt.pieces]

    def pulled(self, oldest: int) -> None:
        self._evidence.pulled(oldest, self._clock.monotonic())

    def check(self) -> None:
        """Raise `OverloadedError` if `entered` would raise it now."""
        if self._member is not None:
            self._member.check()

    async def trust(self) -> None:
        """By hand: nothing that was accepted and lost from Redis is unapplied any more."""
        await self._server.ask(fleet.TRUST)

    async def flaws(self) -> list[str]:
        """What is wrong with this Redis for our purpose."""
        return await flaws_of(self._server)

    async def _run(self) -> None:
        while True:
            pause = self._interval
            if not self._server.up:
                pause = random.uniform(0.2, 1.0) * min(1.0, self._interval)  # noqa: S311
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._server.wake.wait()
            self._server.wake.clear()
            try:
                await self._step()
            except AwayError:
                continue
            except TransientError as error:
                _log.warning("the overlay waits for the store: %s", error)
            except Exception:  # a mistake of ours; without this task nothing would be exact or accepted again
                _log.exception("the overlay in Redis goes on after an error")

    async def _step(self) -> None:
        member = self._member
        if member is None:
            await self._server.look()
            await self._report()
            return
        await member.step()
        await self._flush_withdrawn()
        await self._report()
        await member.forget_settled()
        if member.fleet is not None:
            self._janitor.look(member.fleet.now, member.fleet.members)

    async def _mark(self, member: Member) -> None:
        while True:
            await asyncio.sleep(MARKS * self._interval)
            try:
                if member.ever:  # else nothing was accepted yet, and a fresh fleet should not suspect otherwise
                    await self._epochs.mark_used()
            except Exception:  # a mistake of ours, or a store that refuses it: it is only asked again
                _log.exception("the mark that the fleet is in use is tried again after an error")

    async def _report(self) -> None:
        report = self._evidence.report(self._clock.monotonic())
        if report is not None:
            window = int(self._evidence.window * 1000)
            await self._server.ask(fleet.REPORT, self._flusher, *report, window, ALLOWANCE)

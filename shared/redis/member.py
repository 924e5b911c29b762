"""A process as a member: its lease, its right to go on without Redis, and how it comes back with all it has.

While its lease is good, whatever it has answered is in Redis, so others may say that they see all. It never lives on in
silence: a lease that has lapsed is not renewed; it takes a new id once all of its entries are there.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final
from uuid import uuid4

from shared.clock import Clock
from shared.errors import OverloadedError
from shared.ports import Store
from shared.redis import fleet_scripts as fleet
from shared.redis import scripts
from shared.redis.apart import PERIOD, Apart
from shared.redis.copy import Copy
from shared.redis.entries import MOST_IN_ONE_STEP, Attempt, Piece, in_steps
from shared.redis.epochs import Epochs, Fleet
from shared.redis.lease import Lease
from shared.redis.links import AwayError, FullError, Script
from shared.redis.server import Server

PAUSE: Final = 0.5
"""Seconds."""


class Member:
    """`registered`: Redis counts this process, and nothing of it is unwritten."""

    def __init__(
        self,
        server: Server,
        store: Store,
        clock: Clock,
        copy: Copy,
        epochs: Epochs,
        *,
        lease: float,
        period: float = PERIOD,
    ) -> None:
        self._server = server
        self._store = store
        self._clock = clock
        self._copy = copy
        self._epochs = epochs
        self._period = period
        self._lease = Lease(lease)
        self._known: dict[str, Apart] = {}
        """All ids under which Redis may know this process."""
        self._id = ""
        self._epoch = b""
        self.registered = False
        self.ever = False
        self.fleet: Fleet | None = None
        self._changed = asyncio.Event()
        self._not_before = 0.0
        self._joins = 0
        """Begun ones."""

    async def step(self) -> None:
        """Renew the lease, or take a new one."""
        if not self._server.up:
            await self._server.look()  # asking for a lease in vain would make the wait for its end longer
        if self.registered and self._lease.over(self._clock.monotonic()):
            before = self._lease.until
            until = self._lease.ask(self._clock.monotonic())
            try:
                reply = await self._server.ask(fleet.RENEW, self._epoch, self._id, until, looking=True)
            except FullError:
                self._lease.refused(before)
                raise
            if reply[0] == b"ok":
                self._heard(reply)
                return
        self._lose()
        await self._join()

    def _lose(self) -> None:
        self.registered = False

    async def _join(self) -> None:
        """All that was answered goes to Redis first; the lease comes with the last of it, in one step."""
        if self._clock.monotonic() < self._not_before:
            return
        self._joins += 1
        now, epoch = await self._epochs.current(self.fleet, self._known)
        self._lease.hear(now, self._clock.monotonic())
        await self._epochs.mark_used()
        number = await self._epochs.arrive(epoch, self.fleet)
        member, written = uuid4().hex[:16], set[int]()
        while True:
            left = [attempt for attempt in self._copy.confirmed() if attempt.number not in written]
            pieces = [piece for attempt in left for piece in attempt.pieces]
            if sum(piece.counters for piece in pieces) <= MOST_IN_ONE_STEP:
                break
            for step in in_steps(pieces):
                await self._ask(scripts.REWRITE, epoch, member, *_flat(step))
            written.update(attempt.number for attempt in left)
        before = self._lease.until
        until = self._lease.ask(self._clock.monotonic())  # nothing is answered without Redis before it has run out
        forget = [*self._known]
        self._known[member] = Apart(member, self._store, self._clock, self._period)
        head = (epoch, member, until, self._copy.floor, number, len(forget), *forget)
        try:
            reply = await self._server.ask(fleet.JOIN, *head, *_flat(pieces), looking=True)
        except FullError:
            self._lease.refused(before)
            del self._known[member]
            raise
        except AwayError:
            # It may have been granted. Whoever waits to answer without Redis gets a chance before the next try.
            self._not_before = self._clock.monotonic() + self._lease.over(self._clock.monotonic()) + PAUSE
            raise
        if reply[0] != b"ok":
            self._lease.refused(before)
            del self._known[member]
            raise AwayError("Redis has begun anew meanwhile")
        self._known = {member: self._known[member]}
        self._id, self._epoch = member, epoch
        self._heard(reply)
        self.registered = self.ever = True
        self._changed.set()

    async def _ask(self, script: Script, *arguments: Any) -> Any:
        reply = await self._server.ask(script, *arguments, looking=True)
        if reply[0] != b"ok":
            raise AwayError("Redis has begun anew meanwhile")
        return reply

    def _heard(self, reply: Any) -> None:
        self._server.found()
        _, now, orphans, suspect, top, arrived, flat = reply
        self._lease.hear(now, self._clock.monotonic())
        members = {name.decode(): int(until) for name, until in zip(flat[::2], flat[1::2], strict=True)}
        self.fleet = Fleet(now, orphans, bool(suspect), int(top), int(arrived), self._epoch, members)

    async def write(self, attempts: Sequence[Attempt], *, confirmed: bool) -> bool:
        """Under the lease; False if it has lapsed, or Redis has begun anew: then what was written may not be there."""
        joins = self._joins
        for step in in_steps(piece for attempt in attempts for piece in attempt.pieces):
            head = (self._epoch, self._id, int(confirmed))
            reply = await self._server.ask(scripts.WRITE, *head, *_flat(step))
            if reply[0] != b"ok":
                self._lose()
                self._server.wake.set()
                return False
            if joins != self._joins:
                return False  # what a join brings was collected before this was confirmed
        return True

    async def confirm(self, attempts: Sequence[Attempt]) -> None:
        """Return when whoever says exact will count them: they are in Redis, or all know that some may not be."""
        while True:
            if self.registered and self._server.up:
                self._changed.clear()
                try:
                    done = await self.write(attempts, confirmed=True)
                except AwayError:
                    done = False
                if done:
                    for attempt in attempts:
                        self._copy.confirm(attempt)
                    return
            wait = self._lease.over(self._clock.monotonic())
            if not wait:
                await self._go_apart()
                if not self._lease.over(self._clock.monotonic()) and self._apart():
                    self.registered = False  # from here on Redis lacks something
                    for attempt in attempts:
                        self._copy.confirm(attempt, late=True)
                    return
                wait = 0.05
            self._changed.clear()
            try:
                async with asyncio.timeout(min(wait, 0.25)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _apart(self) -> bool:
        return all(apart.left() > 0 for apart in self._known.values())

    async def _go_apart(self) -> None:
        for apart in [*self._known.values()]:
            await apart.extend()

    def check(self) -> None:
        """`OverloadedError` if nothing could be accepted now."""
        if not self.ever:
            raise OverloadedError(
                f"this process has not reached Redis at {self._server.shown} since it started; writes can be accepted"
                " when it has, or with COUNTERSINK_OVERLAY=memory://",
                retry_after=self._lease.seconds,
            )
        if any(apart.fenced and apart.left() <= 0 for apart in self._known.values()):
            raise OverloadedError(
                f"Redis at {self._server.shown} can't be reached, and the other processes count on it that nothing is"
                " accepted here meanwhile; writes can be accepted when it can be reached again",
                retry_after=self._lease.seconds,
            )

    async def forget_settled(self) -> None:
        """Attempts that somebody else has settled need no place in the copy."""
        while self.registered:
            due = self._copy.due(self._clock.monotonic(), 500)
            if not due:
                return
            places = [(attempt, piece) for attempt in due for piece in attempt.pieces]
            epoch = self._epoch
            flat = chain.from_iterable((piece.key, piece.attempt) for _, piece in places)
            reply = await self._server.ask(scripts.GONE, epoch, *flat)
            if reply[0] != b"ok" or not self.registered or self._epoch != epoch:
                return
            gone = set(reply[2])
            left = {attempt.number for place, (attempt, _) in enumerate(places) if place not in gone}
            self._copy.gone([attempt for attempt in due if attempt.number not in left], int(reply[1]))

    async def leave(self) -> None:
        """Only if nothing is unwritten. Entries stay until somebody settles them."""
        if self.registered:
            self.registered = False
            await self._server.ask(fleet.LEAVE, *self._known)

    @property
    def ids(self) -> Iterable[str]:
        return self._known.keys()


def _flat(pieces: Iterable[Piece]) -> Iterable[Any]:
    return chain.from_iterable(piece.arguments() for piece in pieces)

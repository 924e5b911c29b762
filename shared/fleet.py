"""The fleet, as one process sees it: looks at it, the process's own record in it, and which processes have a spool file
open.
"""

import asyncio
import fcntl
import logging
import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from shared.model.buckets import NEVER, StoreMillis
from shared.model.errors import OverloadedError, TransientError
from shared.model.fleet import LONGEST_LOOK, LOOK_MARGIN, NONE, SILENCE, Fleet, PublisherRecord
from shared.model.words import pages
from shared.ports.store import FleetBook, FleetLook, Left, ReceiptBook, Rows, SpoolFile
from shared.runtime.clock import Clock
from shared.runtime.retry import Backoff, ended, insist

_log = logging.getLogger(__name__)

LOOK_WITHIN: Final = 2.0
"""Seconds for the store to answer a look."""
CHANGE_WITHIN: Final = 5.0
"""Seconds for the store to take a change."""
PAUSE: Final = 0.5
"""Seconds without a new look after one has failed. Readings are inexact meanwhile."""
_DRIFT: Final = 0.001
"""By how much our clock may run faster than the store's, as a fraction, at most."""


class FleetView:
    """Looks at the fleet. A question is answered by a look that began after it, or at most `age` seconds before it."""

    def __init__(self, book: FleetBook, clock: Clock, age: float) -> None:
        self._book = book
        self._clock = clock
        self._age = age
        self._flight: asyncio.Task[None] | None = None
        self._failed = float("-inf")
        """When the last failed look began."""
        self._told = float("-inf")
        """When `last` was received."""
        self.answered = True
        """Whether the store answered the last look."""
        self._heard = (NEVER, 0.0)
        """The store's clock in the last answer, and when that came."""
        self.last: FleetLook | None = None
        """The latest fleet that was seen."""
        self.at = float("-inf")
        """When the last successful look began. It shows the fleet at that instant, or later."""
        self._named_at = float("-inf")
        """When this process first saw the overlay that is named now."""

    def fresh(self) -> FleetLook | None:
        """The last look, if it answers a question that is asked now."""
        return self.last if self.at >= self._clock.monotonic() - self._age else None

    async def get(self, age: float | None = None) -> FleetLook | None:
        """A look at most `age` seconds old, by default the `age` of this object. None if the store does not answer."""
        asked = self._clock.monotonic()
        oldest = asked - (self._age if age is None else age)
        while True:
            if self.last is not None and self.at >= oldest:
                return self.last
            if self._failed >= asked - PAUSE:
                return None
            if self._flight is None:
                flight = self._fly(self._clock.monotonic())
                self._flight = asyncio.create_task(flight, name="look at the fleet")
            await asyncio.shield(self._flight)

    async def change(self, step: Callable[[Fleet, StoreMillis], Fleet | None], left: Left | None = None) -> FleetLook:
        """Like `FleetBook.change`. Raises `TransientError` if the store does not answer within a few seconds."""
        begun = self._clock.monotonic()
        try:
            async with asyncio.timeout(CHANGE_WITHIN):
                look = await self._book.change(step, left)
        except TimeoutError as error:
            raise TransientError("the store does not answer in time") from error
        self._hear(look, begun)
        return look

    async def left_by(self, member: str) -> Collection[str] | None:
        """Like `FleetBook.left_by`. Raises `TransientError` if the store does not answer within a few seconds."""
        try:
            async with asyncio.timeout(LOOK_WITHIN):
                return await self._book.left_by(member)
        except TimeoutError as error:
            raise TransientError("the store does not answer in time") from error

    def young(self) -> float:
        """Seconds until no reading can use a look from before the present overlay was named. Until then no reading is
        exact and no change is answered, since those readings do not see what happens here. 0 if there was none before.
        """
        if self.last is None or self.last.fleet.overlay.epoch <= 1:
            return 0.0
        return max(0.0, self._named_at + LONGEST_LOOK + LOOK_MARGIN - self._clock.monotonic())

    def now(self) -> StoreMillis:
        """A lower bound of the store's clock; `NEVER` before the store has answered."""
        time, at = self._heard
        return StoreMillis(time + int((self._clock.monotonic() - at) * (1 - _DRIFT) * 1000)) if time else NEVER

    def _hear(self, look: FleetLook, begun: float) -> None:
        if look.now >= self.now():
            self._heard = look.now, self._clock.monotonic()
        # An answer with a lower version is newer, too, if the question came after the last answer: the entity was
        # deleted meanwhile.
        if self.last is None or look.fleet.version >= self.last.fleet.version or begun > self._told:
            before = NONE if self.last is None else self.last.fleet.overlay
            self.last, self.at, self._told = look, max(begun, self.at), self._clock.monotonic()
            if look.fleet.overlay != before:
                self._named_at = self._told

    async def _fly(self, begun: float) -> None:
        try:
            async with asyncio.timeout(LOOK_WITHIN):
                look = await self._book.look()
        except (TransientError, TimeoutError) as error:
            said = "can't read the list of processes from the store; reads are not exact until that works: %s"
            _log.log(logging.WARNING if self.answered else logging.DEBUG, said, str(error) or "no answer in time")
            self.answered, self._failed = False, begun
        else:
            self.answered = True
            self._hear(look, begun)
        finally:
            self._flight = None

    async def close(self) -> None:
        await ended(self._flight)


# Keeps the fleet's record of one publisher, and says whether it may answer.


UNKNOWN: Final = "unknown"
"""It is not known what the store says about this member, so it answers nothing."""
OWES: Final = "owes"
JOINING: Final = "joining"
"""A commit which says that it has joined is under way."""
JOINED: Final = "joined"
STOPPED: Final = "stopped"
"""It answers nothing more."""
MOST_LEFT: Final = 10_000
"""Receipts in the list of a member that stops: 700 kB."""


class FoundInSpool(NamedTuple):
    """What a member finds in its spool file."""

    dead: Collection[str]
    """Other members that had the file and are gone."""
    rows: Rows
    """All rows in it: theirs, and its own."""


def new_member() -> str:
    """A name that no other run has or had."""
    return uuid4().hex[:16]


def in_memory(topic: str, spool: str) -> str:
    """The name of the member that stands for all processes with `memory://` on one spool file or one topic."""
    return f"memory-{spool or topic}"


class Membership:
    """One run of one publisher. It answers nothing before its record is in the store (ADR 18, rules 4, 6 and 13)."""

    def __init__(
        self,
        looks: FleetView,
        clock: Clock,
        *,
        member: str,
        topic: str,
        spool: SpoolFile | None = None,
        longest_look: float = LONGEST_LOOK,
        silence: float = SILENCE,
    ) -> None:
        self.id = member
        self._looks = looks
        self._clock = clock
        self._topic = topic
        self._file = spool
        self._spool = spool.id if spool is not None else ""
        if spool is not None:
            spool.hold(member)
        self.found: FoundInSpool | None = None
        """If it is not None, enter its rows before anything else, then call `inherit`."""
        self._heir_of: Collection[str] | None = None
        """The dead members that hold this file, by the last look, and whose rows are in the copy. None before the first
        rows were entered.
        """
        self._wait = longest_look + LOOK_MARGIN if longest_look else 0.0
        self._silence = silence
        self._turn = asyncio.Lock()
        self.state = UNKNOWN
        self.epoch = 0
        """The epoch that it has joined."""
        self._seen_epoch = 0
        self._seen_at = 0.0
        """When the current epoch was first seen here."""
        self._free = 0.0
        """When it may answer. Until then, readers may use a look from before the last change."""

    def joined(self, fleet: Fleet) -> bool:
        return self.state == JOINED and self.epoch == fleet.overlay.epoch

    def check(self) -> None:
        """Raise `OverloadedError` if this process may answer nothing now."""
        if self.state == STOPPED:
            raise OverloadedError("this process is stopping, and accepts nothing more: try again")
        if self.state == UNKNOWN:
            raise OverloadedError(
                "this process accepts nothing, since it is not in the store's list of processes yet; it enters the list"
                " as soon as the store answers (COUNTERSINK_STORE)"
            )
        if not self._spool and self._clock.monotonic() - self._looks.at > self._silence:
            raise OverloadedError(
                f"the store has not answered for {self._silence:.0f} seconds, so the other processes may take this"
                " process for dead; it continues as soon as the store answers (COUNTERSINK_STORE)"
            )

    async def until_free(self) -> None:
        """Return when no reading can use a look from before the last change."""
        if (left := self._free - self._clock.monotonic()) > 0:
            await asyncio.sleep(left)
            await self.until_free()

    def reconcile(self, look: FleetLook) -> None:
        """Learn from a look what the store says about this member, its overlay and its spool file."""
        overlay = look.fleet.overlay
        if overlay.epoch != self._seen_epoch:
            self._seen_epoch, self._seen_at = overlay.epoch, self._clock.monotonic()
        self._find(look.fleet)
        if self.state not in {OWES, JOINED}:
            return
        record = look.fleet.members.get(self.id)
        if record is None or record.struck:
            _log.info("this process was taken for dead; it enters the store's list of processes again")
            self.state = UNKNOWN
        elif self.state == JOINED and not record.joined:  # its commit of `owes` was done, and the answer was lost
            self.state = UNKNOWN

    def shares(self, look: FleetLook) -> bool:
        """Whether another process that shares the record made it say `owes`. If so, this process needs no commit."""
        record = look.fleet.members.get(self.id)
        if record is None or record.struck or record.joined or record.spool != self._spool:
            return False
        self._owes(look)
        return True

    async def owe(self) -> None:
        """Return when the store says that this process may have accepted something that is in no overlay."""
        async with self._turn:
            if self.state == OWES:
                return
            if self.state == STOPPED:
                self.check()
            look = await self._changed(
                lambda fleet, now: self._inherits(fleet, now).owes(self.id, self._topic, self._spool)
            )
            self._owes(look)

    def _owes(self, look: FleetLook) -> None:
        self.state = OWES
        if look.fleet.overlay.epoch:  # without an overlay, no reading has been exact
            self._free = self._clock.monotonic() + self._wait

    async def join(self, epoch: int) -> bool:
        """Have the store say that all that this process accepted is in the epoch's overlay. False if it did not say so.

        Call it in the same step of the event loop in which you found nothing left to write.
        """
        if self.state in {JOINING, STOPPED}:
            return False
        before, self.state = self.state, JOINING

        def step(fleet: Fleet, now: StoreMillis) -> Fleet | None:
            if fleet.overlay.epoch != epoch:
                return None
            return self._inherits(fleet, now).joins(self.id, self._topic, self._spool)

        async with self._turn:
            if self.state != JOINING:  # it came to owe meanwhile, and may have answered what is not written
                return False
            try:
                look = await self._changed(step)
            except BaseException:
                self.state = UNKNOWN
                raise
            if look.fleet.overlay.epoch != epoch:
                self.state = before  # the epoch has ended, so nothing was written
                return False
            self.state, self.epoch = JOINED, epoch
            if epoch > 1:  # before the first epoch, no reading was exact
                self._free = max(self._free, self._seen_at + self._wait)
            return True

    async def stop(self) -> str:
        """Answer nothing from now on. Returns the state until then."""
        async with self._turn:
            before, self.state = self.state, STOPPED
            return before

    async def leave(self, pending: Collection[str], patience: float = CHANGE_WITHIN) -> None:
        """Call it after `stop`. Leave a list of these receipts behind, which are all of what was accepted here that may
        not be settled; or remove the record if there is none. If the store does not answer, try again for `patience`
        seconds, then raise `TransientError`: a stop that is not in the store is like a death.
        """
        left = Left(self.id, pending) if 0 < len(pending) <= MOST_LEFT else None

        def step(fleet: Fleet, now: StoreMillis) -> Fleet | None:
            if self.id not in fleet.members:
                return None
            return fleet.stops(self.id, now, listed=left is not None) if pending else fleet.without(self.id)

        async with self._turn:
            try:
                async with asyncio.timeout(patience):
                    change = partial(self._changed, step, left)
                    await insist(change, TransientError, lambda: True, Backoff(most=1.0))
            except TimeoutError as error:
                raise TransientError(f"the store has not answered for {patience:.0f} seconds") from error

    def inherit(self, found: FoundInSpool) -> None:
        """Call it when rows are entered. The next change of the record takes the file over from the dead members."""
        self._heir_of, self.found = found.dead, None

    def _find(self, fleet: Fleet) -> None:
        """Set `found`: at first to whatever is in the file, later when a member that had it is struck and gone."""
        if self._file is None or self.found is not None:
            return
        first, had = self._heir_of is None, self._with_spool(fleet)
        if self._heir_of is not None:
            had = {name: one for name, one in had.items() if one.gone() and name not in self._heir_of}
        if first or had:
            dead = had.keys() - self._file.alive()  # asked before the rows are read, so the dead can't add any later
            if first or dead:
                self.found = FoundInSpool(dead, self._file.rows())

    def _with_spool(self, fleet: Fleet) -> dict[str, PublisherRecord]:
        """Other members that may have rows in the same file."""
        return {name: one for name, one in fleet.members.items() if one.spool == self._spool and name != self.id}

    def _inherits(self, fleet: Fleet, now: StoreMillis) -> Fleet:
        return fleet.takes_over(self._heir_of or (), now)

    async def _changed(self, step: Callable[[Fleet, StoreMillis], Fleet | None], left: Left | None = None) -> FleetLook:
        look = await self._looks.change(step, left)
        if self._heir_of and self._with_spool(look.fleet).keys().isdisjoint(self._heir_of):
            self._heir_of = ()  # forget the names, since `memory://` may use that of its record again
        self.reconcile(look)
        return look


# Tells which processes have a spool file open. Each locks a file beside it, and the lock ends with the process.


class SpoolHolders:
    """The holders of one spool file. A process that stands still keeps its lock; one that ended has lost it, however it
    ended. Several processes may be one member.
    """

    def __init__(self, folder: Path, spool: str) -> None:
        """`folder`: of the file itself, not of a link to it. `spool`: the file's id, since its name may change."""
        self._folder = folder
        self._spool = spool
        self._locks = re.compile(re.escape(spool) + r"\.([^.]+)\.[0-9a-f]{8}\.holder")
        self._held: int | None = None

    def hold(self, member: str) -> None:
        """Hold the file for the member, until `close` or the end of this process."""
        own = self._folder / f"{self._spool}.{member}.{uuid4().hex[:8]}.holder"
        new = own.with_suffix(".new")
        self._held = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.fchmod(self._held, 0o600)  # whatever the umask is
        fcntl.flock(self._held, fcntl.LOCK_EX)
        new.rename(own)  # only now, so that nobody sees it without its lock

    def alive(self) -> set[str]:
        """The members that have the file. A member that had it and is not among them adds no more rows."""
        found = [(match[1], path) for path in self._folder.iterdir() if (match := self._locks.fullmatch(path.name))]
        return {member for member, path in found if not _removed(path)}

    def close(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _removed(path: Path) -> bool:
    """Whether the process of the lock file is gone. If so, the file is removed."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except PermissionError:  # another user's file, so its process may live
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    with suppress(FileNotFoundError, PermissionError):
        path.unlink()
    return True


# Removes the record of a process that stopped in good order, once all that it listed then is settled (ADR 32).


FIRST_PAUSE: Final = 1.0
"""Seconds between two looks for the receipts of a list. They double each time that nothing new is found."""
LONGEST_PAUSE: Final = 60.0
MOST_KEYS_ASKED: Final = 1_000
"""Receipts that are looked up at once."""


async def unsettled(store: ReceiptBook, keys: Sequence[str]) -> list[str]:
    """The receipts among these that are not settled. `TransientError` if the store does not answer."""
    left = list[str]()
    for some in pages(keys, MOST_KEYS_ASKED):
        found = (await store.receipts(some)).found
        left += [key for key in some if key not in found or not found[key].settled]
    return left


@dataclass(slots=True)
class _Missing:
    """The receipts of one list that were not found yet."""

    keys: list[str]
    due: float
    pause: float = FIRST_PAUSE


class StoppedMembers:
    """Works for one live member. Several may do it at once: a record is removed only as it was seen."""

    def __init__(self, looks: FleetView, store: ReceiptBook, clock: Clock) -> None:
        self._looks = looks
        self._store = store
        self._clock = clock
        self._missing: dict[str, _Missing] = {}

    async def tidy(self, look: FleetLook) -> None:
        """Look up what is due, and remove the records that miss nothing."""
        listed = {name: record for name, record in look.fleet.members.items() if record.listed}
        self._missing = {name: one for name, one in self._missing.items() if name in listed}
        for name, record in listed.items():
            try:
                async with asyncio.timeout(LOOK_WITHIN):
                    settled = await self._settled(name)
            except (TransientError, TimeoutError) as error:
                _log.debug("can't find out whether all that %s left behind is settled: %s", name, error)
                return
            if settled:
                await self._remove(name, record)

    async def _settled(self, name: str) -> bool:
        """Whether all of the list is settled. Looks for a part of it, if it is time to."""
        now = self._clock.monotonic()
        if name not in self._missing:
            its: Collection[str] | None = await self._looks.left_by(name)
            if its is None:  # then the evidence of flushers has to do
                self._missing[name] = _Missing([], float("inf"))
            else:
                self._missing[name] = _Missing([*its], now)
        missing = self._missing[name]
        while missing.keys and missing.due <= now:
            some = missing.keys[:MOST_KEYS_ASKED]
            left = await unsettled(self._store, some)
            missing.keys = [*missing.keys[MOST_KEYS_ASKED:], *left]
            if left:
                missing.pause = FIRST_PAUSE if len(left) < len(some) else min(2 * missing.pause, LONGEST_PAUSE)
                missing.due = now + missing.pause
        return not missing.keys and missing.due <= now

    async def _remove(self, name: str, record: PublisherRecord) -> None:
        def step(fleet: Fleet, _: StoreMillis) -> Fleet | None:
            return fleet.without(name) if fleet.members.get(name) == record else None

        if name not in (await self._looks.change(step)).fleet.members:
            _log.info("a process has stopped, and everything that it accepted is applied: %s", name)

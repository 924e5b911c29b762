"""Keeps a publisher's promise to the fleet, decides when it names another overlay, and removes members that are
gone: how long they must be silent. `overlay.py` says how often it looks.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final
from uuid import uuid4

from shared.fleet import JOINED, OWES, STOPPED, UNKNOWN, FleetView, Membership
from shared.model.buckets import Instant, StoreMillis
from shared.model.errors import OverloadedError, TransientError
from shared.model.fleet import Fleet, NamedOverlay, PublisherRecord
from shared.ports.store import FleetLook, Rows
from shared.redis import scripts
from shared.redis.own_entries import Copy, PublishTry, in_steps
from shared.redis.scripts import FENCE
from shared.redis.server import UNSAID, AwayError, Server, flaw_of_policy
from shared.runtime.clock import Clock
from shared.runtime.retry import set_within

# Decides when a process names another overlay. Naming is always safe; the rules only avoid disputes (ADR 18, rule 9).
# Pure.


FIRST: Final = 5.0
"""Seconds between two namings by one process, if another process names in between. They double each time, since the two
sides of a split would go on for ever.
"""
LONGEST_WAIT: Final = 300.0
CALM: Final = 10
"""A naming after this many pauses or more sets the pause back to `FIRST`."""
ELSEWHERE: Final = 60.0
"""Seconds for which members of an overlay at another address are left alone. They double with the pause."""


class Naming:
    """When to name the server that this process reaches. Use it while the named overlay does not answer."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._pause = FIRST
        self._at = float("-inf")
        self._own = ""
        """The nonce that this process named last."""
        self._since: tuple[NamedOverlay, float] | None = None
        """The named overlay that this process does not reach, and when it first found that."""

    def due(self, fleet: Fleet, server: str, now: float) -> bool:
        """Whether to name the server with the identity `server` now. `now` is monotonic."""
        overlay = fleet.overlay
        if self._since is None or self._since[0] != overlay:
            self._since = overlay, now
        ours = overlay.identity == server and overlay.place == self._place  # not another database of the same server
        if overlay.nonce == self._own or ours:
            return True  # the server was restarted or emptied, so no other process claims another one
        if now - self._at < self._pause:
            return False
        if overlay.place == self._place:
            return True
        alone = not any(fleet.joined(record) and not record.stopped for record in fleet.members.values())
        return alone or now - self._since[1] >= ELSEWHERE * self._pause / FIRST

    def named(self, nonce: str, now: float) -> None:
        """Note that this process has tried to name an overlay with this nonce."""
        self._pause = min(2 * self._pause, LONGEST_WAIT) if now - self._at < CALM * self._pause else FIRST
        self._at, self._own = now, nonce


_log = logging.getLogger(__name__)

APART_AFTER: Final = 1.0
"""Seconds for which an answer waits while Redis is away, before this process continues without it."""
MOST_SETTLED_AT_ONCE: Final = 500
"""Tries in one look for those that other processes have settled."""


class Member:
    """A member of the fleet. `overlay` is the overlay that it writes to, or None while there is none."""

    def __init__(
        self,
        server: Server,
        membership: Membership,
        looks: FleetView,
        clock: Clock,
        copy: Copy,
        *,
        patience: float,
    ) -> None:
        self.membership = membership
        self._server = server
        self._looks = looks
        self._clock = clock
        self._copy = copy
        self._patience = patience
        self._naming = Naming(server.place)
        self._changed = asyncio.Event()
        self.overlay: NamedOverlay | None = None
        self._spoiled = ""
        """The nonce of an overlay whose server might have dropped entries since."""
        self._doubted = False
        self._fenced = False
        """Whether others may have fenced it since its record was last written."""

    def joined(self) -> bool:
        """Whether its record says that all that was answered here is in the overlay that it writes to.

        While it changes to another overlay, the record names the one before, and readers may not know of the new one.
        """
        overlay, membership = self.overlay, self.membership
        return overlay is not None and membership.state == JOINED and membership.epoch == overlay.epoch

    def _may_answer(self) -> bool:
        return self.joined() or self.membership.state == OWES

    async def step(self, look: FleetLook) -> FleetLook:
        """Do what is next on the way to `joined`, and return the fleet after it."""
        self._reconcile(look)
        if (found := self.membership.found) is not None:
            self.lose()
            if not await self._entered_rows(found.rows):
                await self._owe()
                return self._looks.last or look
            self.membership.inherit(found)
        try:
            look = await self._step(look)
        except AwayError:
            self.lose()
            if self.membership.state == UNKNOWN:
                await self._owe()
            raise
        return look

    async def _step(self, look: FleetLook) -> FleetLook:
        named = look.fleet.overlay
        who = await self._server.who(named)
        await self._refuse_evicting(who.policy, named)
        if not (who.master and who.holds and who.name == named.identity) or named.nonce == self._spoiled:
            self.lose()
            if not self._naming.due(look.fleet, who.name, self._clock.monotonic()):
                if self.membership.state == UNKNOWN:
                    await self._owe()
                return self._looks.last or look
            look = await self._name(look)
        if self.overlay != look.fleet.overlay or not self.membership.joined(look.fleet):
            await self._join(look.fleet.overlay)
        return self._looks.last or look

    async def _refuse_evicting(self, policy: str, named: NamedOverlay) -> None:
        """What a server that may drop entries holds is no overlay any more, whatever it does later: it is named again
        then, so that all tell it everything.
        """
        if not policy and not self._doubted:
            self._doubted = True
            _log.warning("Redis at %s %s", self._server.shown, UNSAID)
        if (flaw := flaw_of_policy(policy)) is None:
            return
        self._spoiled = named.nonce
        self.lose()
        self._server.say(flaw)
        if self.membership.state != OWES:
            await self._owe()
        raise AwayError(flaw)

    async def _entered_rows(self, rows: Rows) -> bool:
        """Enter the rows of the spool file into the copy, as late, before this process joins (ADR 18, rule 14).

        Returns whether all rows are entered or have been forwarded. Rows that can't be read, or that the copy has no
        room for, keep this process from joining until then.
        """
        async for envelope, taken in rows.read():
            try:
                (publish_try,) = self._copy.add([envelope], self._clock.monotonic(), taken)
            except OverloadedError:
                break
            self._copy.confirm(publish_try, late=True)
        return rows.unreadable is False or await rows.all_forwarded()

    def _reconcile(self, look: FleetLook) -> None:
        self.membership.reconcile(look)
        if self.membership.state == UNKNOWN or self.overlay != look.fleet.overlay:
            self.lose()

    def lose(self) -> None:
        """Stop using the overlay. Entries that are being written have to be written again."""
        self.overlay = None

    async def _name(self, seen: FleetLook) -> FleetLook:
        """Make a new epoch on this server and name it in the store, unless another process was faster."""
        nonce = uuid4().hex[:12]
        identity = await self._server.make(nonce)
        if identity is None:
            raise AwayError(f"Redis at {self._server.shown} is a replica: name the server that takes writes")

        def step(fleet: Fleet, _: StoreMillis) -> Fleet | None:
            return fleet.names(nonce, identity, self._server.place) if fleet.overlay == seen.fleet.overlay else None

        look = await self._looks.change(step)
        if look.fleet.overlay.nonce == nonce and seen.fleet.overlay.epoch:
            _log.warning("Redis at %s is the overlay from now on; all entries are written there", self._server.shown)
        self._naming.named(nonce, self._clock.monotonic())
        self._reconcile(look)
        return look

    async def _owe(self) -> None:
        await self.membership.owe()
        self._changed.set()

    async def _join(self, overlay: NamedOverlay) -> None:
        """Write all answered entries to the overlay, also those that are answered apart meanwhile, then join."""
        await self._unfence(overlay)
        self.overlay = overlay
        written = set[int]()
        while left := [publish_try for publish_try in self._copy.confirmed() if publish_try.number not in written]:
            for step in in_steps(left):
                await self._write(overlay, step, confirmed=True, again=True)
            written.update(publish_try.number for publish_try in left)
        try:
            joined = await self.membership.join(overlay.epoch)
        except TransientError:
            self.lose()
            raise
        if not joined:
            self.lose()
        self._changed.set()

    async def _unfence(self, overlay: NamedOverlay) -> None:
        """End a fence. Its maker may be about to remove this record, so change the record before any answer."""
        before, self._fenced = self._fenced, True  # the write may end a fence while its answer is lost
        self._fenced = await self._write(overlay, (), confirmed=True, again=True) or before
        if self._fenced and self.membership.state == JOINED:
            await self._owe()
        self._fenced = False

    async def _write(self, overlay: NamedOverlay, some: Iterable[PublishTry], *, confirmed: bool, again: bool) -> bool:
        """Write the tries. Returns whether this process was fenced, which ends if it writes `again`."""
        head = (self.membership.id, int(confirmed), int(again))
        flat = chain.from_iterable(publish_try.arguments() for publish_try in some)
        reply = await self._server.ask(scripts.WRITE, overlay, *head, *flat, looking=again)
        if reply[0] != b"ok":
            if self.overlay == overlay:
                self.lose()
            self._server.wake.set()
            raise AwayError("this Redis is not the fleet's overlay, or other processes took this process for dead")
        return bool(reply[1])

    async def write(self, tries: Sequence[PublishTry], *, confirmed: bool) -> bool:
        """Write to the overlay. False if it was lost on the way: then what was written may not be there."""
        overlay = self.overlay
        if overlay is None:
            return False
        for step in in_steps(tries):
            await self._write(overlay, step, confirmed=confirmed, again=False)
        return self.overlay == overlay

    async def announce(self, tries: Sequence[PublishTry]) -> None:
        """Enter the tries before they are published, so that readings ask for their receipts.

        A write that fails here may still reach Redis after the envelope was published and applied. So the tries get
        new names, under which they are entered late.
        """
        try:
            known = await self.write(tries, confirmed=False)
        except AwayError:
            known = False
        if not known:
            for publish_try in tries:
                publish_try.rename()

    async def confirm(self, tries: Sequence[PublishTry]) -> None:
        """Return when every reading that says exact will count them: they are in the overlay, or the store says that
        they may not be.
        """
        if self.membership.state == STOPPED:  # it would not be in the list
            self.membership.check()
        until = self._clock.monotonic() + self._patience
        for publish_try in tries:  # others may see it from now on, and sets rely on it: the next epoch needs it, too
            publish_try.confirmed = True
        while True:
            self._changed.clear()
            if self._may_answer() and await self._entered(tries):
                for publish_try in tries:
                    self._copy.confirm(publish_try)
                break
            if self.membership.state == OWES:
                for publish_try in tries:
                    self._copy.confirm(publish_try, late=True)
                break
            left = until - self._clock.monotonic()
            if left <= 0:
                await self._owe()
                continue
            await set_within(self._changed, min(left, 0.25))
        await self.membership.until_free()
        self.membership.check()

    async def _entered(self, tries: Sequence[PublishTry]) -> bool:
        if self.overlay is None or not self._server.up:
            return False
        try:
            return await self.write(tries, confirmed=True) and self._may_answer()
        except AwayError:
            return False

    async def remove_settled(self) -> None:
        """Remove the tries that another process has settled from the copy."""
        while (overlay := self.overlay) is not None:
            due = self._copy.due(self._clock.monotonic(), MOST_SETTLED_AT_ONCE)
            if not due:
                return
            flat = chain.from_iterable(publish_try.place() for publish_try in due)
            reply = await self._server.ask(scripts.GONE, overlay, *flat)
            if reply[0] != b"ok" or self.overlay != overlay or not self.joined():
                return
            self._copy.remove_settled([due[place] for place in reply[2]], Instant(int(reply[1])))

    async def leave(self, patience: float) -> None:
        """Remove the record if nothing that was confirmed here may be pending. Otherwise say in the store that this
        process has stopped, and what may be pending, so that other processes remove the record (ADR 32). It tries for
        `patience` seconds.
        """
        joined = await self.membership.stop() == JOINED
        overlay, pending = self.overlay, {one.envelope.key for one in self._copy.confirmed()}
        if overlay is not None and joined and self.membership.epoch == overlay.epoch and self._server.up:
            with suppress(AwayError):
                reply = await self._server.ask(FENCE, overlay, self.membership.id)
                if reply[0] == b"ok" and not reply[1]:  # other processes have settled all of it
                    pending.clear()
        if self.membership.found is None:  # else rows of its spool file are in no list
            await self.membership.leave(pending, patience)


# Removes the records of members that seem to be gone. Several processes may do each step at once.


SILENT: Final = 10.0
"""Seconds without a sign of life in Redis after which a member that has joined is fenced."""
STRUCK_AFTER: Final = 30.0
"""Seconds for which a record owes before its member is taken for dead. They double each time that it came back."""
LONGEST_SILENCE: Final = 3_600.0


class GoneMembers:
    """Works for one live member. That another is silent is only a hint, so each step is safe if the other lives."""

    def __init__(self, server: Server, looks: FleetView, clock: Clock, member: str, silent: float = SILENT) -> None:
        self._server = server
        self._looks = looks
        self._clock = clock
        self._member = member
        self._silent = silent
        self._since: dict[str, tuple[object, float]] = {}
        """The last sign of each member, and when it was first seen."""

    async def tidy(self, look: FleetLook, seen: Mapping[str, str]) -> None:
        """Fence or strike members that seem to be gone. `seen`: when Redis last heard each member of the epoch."""
        fleet = look.fleet
        others = {name: record for name, record in fleet.members.items() if name != self._member}
        self._since = {name: one for name, one in self._since.items() if name in others}
        for name, record in others.items():
            still = self._still(name, (record, seen.get(name)))
            if fleet.joined(record):
                if still >= self._silent:
                    await self._fence(fleet, name, record)
            elif not record.gone() and still >= min(STRUCK_AFTER * 2**record.strikes, LONGEST_SILENCE):
                await self._strike(name, record)

    def _still(self, name: str, sight: object) -> float:
        """For how many seconds the member has looked like this."""
        now = self._clock.monotonic()
        if name not in self._since or self._since[name][0] != sight:
            self._since[name] = sight, now
        return now - self._since[name][1]

    async def _fence(self, fleet: Fleet, name: str, record: PublisherRecord) -> None:
        """Fence it. Without an entry in the overlay, all that it answered is applied: its record goes.
        See ADR 18, rule 11.
        """
        reply: Any = await self._server.ask(FENCE, fleet.overlay, name)
        if reply[0] != b"ok" or reply[1]:
            return

        def step(now: Fleet, _: StoreMillis) -> Fleet | None:
            same = now.overlay == fleet.overlay and now.members.get(name) == record
            return now.without(name) if same else None

        if name not in (await self._looks.change(step)).fleet.members:
            _log.info("a process is gone, and everything that it accepted is applied: %s", name)

    async def _strike(self, name: str, record: PublisherRecord) -> None:
        def step(now: Fleet, time: StoreMillis) -> Fleet | None:
            return now.strikes(name, time) if now.members.get(name) == record else None

        after = (await self._looks.change(step)).fleet.members.get(name)
        if after is None or after.strikes == record.strikes:
            return
        _log.warning(
            "process %s may be gone, and may have accepted increments that no overlay holds: reads are not exact until"
            " it is back, or flushers have found that it left none",
            name,
        )

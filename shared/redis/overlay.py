"""The overlay of a fleet in Redis or Valkey: every process sees the entries of all, or knows that it does not.

Its loop says how often a member steps, looks at the fleet, and looks for others that are gone (`EVERY`, `LOOK_EVERY`).
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from shared.counters.pending import UNSEEN
from shared.fleet.fleet_view import CHANGE_WITHIN, FleetView
from shared.fleet.membership import Membership, StoppedMembers
from shared.model.buckets import BEGINNING, NEVER, Instant
from shared.model.errors import InexactError, TransientError
from shared.model.fleet import NamedOverlay
from shared.model.receipts import Ages, Promise, ages
from shared.model.words import ANY_NAME, Backlog, Envelope, View, pages
from shared.ports.store import Commits
from shared.redis import scripts
from shared.redis.member import APART_AFTER, SILENT, GoneMembers, Member
from shared.redis.own_entries import MOST_COPIED, Copy, PublishTry, read
from shared.redis.scripts import HEARD, Script
from shared.redis.server import TIMEOUT, AwayError, Links, Server
from shared.runtime.clock import Clock
from shared.runtime.retry import ended, set_within

# A cache of views that Redis has answered.


MOST_VIEWED: Final = 20_000
_VERSIONS: Final = count(-1, -1)
"""Below zero, so that none equals a version of the local copy's views. Shared by all overlays in this process."""


class Context(NamedTuple):
    """What all views of one answer have in common."""

    epoch: str
    exact: bool
    floor: Instant
    """The floor of all counters."""


def both(one: View, other: View) -> View:
    """Join two views of a counter. An entry that both have counts once, by its receipt key. The result is not exact."""
    return replace(
        one,
        entries=(*one.entries, *other.entries),
        floor=max(one.floor, other.floor),
        version=next(_VERSIONS),
        exact=False,
    )


def _doubted(view: View, unsure: Collection[str]) -> View:
    """The view, which is not exact if it has an unsure entry. Then it is not cached and has a version of its own, since
    entries become unsure by age alone.
    """
    if any(entry.key in unsure for entry in view.entries):
        return replace(view, version=next(_VERSIONS), exact=False)
    return view


class _Seen(NamedTuple):
    version: bytes
    floor: Instant
    """The counter's own floor."""
    of: Context
    view: View


class ViewQuestion(NamedTuple):
    """The counters that Redis is asked for, and what the cache held then. It may change before the answer comes."""

    counters: Sequence[str]
    known: Mapping[str, _Seen]

    def arguments(self) -> Iterator[Any]:
        """Each counter, followed by the version that is known of it."""
        for name in self.counters:
            yield name
            yield self.known[name].version if name in self.known else b""


class Views:
    """A cache for one epoch. It is emptied when it is full, or when another epoch begins."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._epoch = ""
        self._empty: tuple[Context, View] | None = None

    def question(self, counters: Sequence[str], epoch: str) -> ViewQuestion:
        if len(self._seen) > MOST_VIEWED or epoch != self._epoch:
            self._seen.clear()
            self._epoch = epoch
        seen = self._seen
        return ViewQuestion(counters, {name: seen[name] for name in counters if name in seen})

    def answer(
        self, question: ViewQuestion, hashes: Sequence[Any], of: Context, unsure: Collection[str] = ()
    ) -> dict[str, View]:
        """Views by counter, without counters that have too many entries. A view with an `unsure` entry is not exact."""
        found = [(name, one) for name, one in zip(question.counters, hashes, strict=True) if one != b"many"]
        views = {name: self._view(name, one, of, question.known.get(name)) for name, one in found}
        return {name: _doubted(view, unsure) for name, view in views.items()} if unsure else views

    def _view(self, name: str, found: bytes, of: Context, before: _Seen | None) -> View:
        if found == b"":
            if of.epoch == self._epoch:
                self._seen.pop(name, None)
            if self._empty is None or self._empty[0] != of:
                self._empty = (of, View((), of.floor, next(_VERSIONS), of.exact, of.epoch))
            return self._empty[1]
        if b"\n" not in found:
            assert before is not None  # noqa: S101 - Redis sends only a version if the question had the same one
            if before.of == of:
                return before.view
            version, floor, entries = found, before.floor, before.view.entries
        else:
            version, floor, entries = read(found.split(b"\n"))
        view = View(entries, max(floor, of.floor), next(_VERSIONS), of.exact, of.epoch)
        if of.epoch == self._epoch:
            self._seen[name] = _Seen(version, floor, of, view)
        return view


def bounds_of(prefix: str) -> tuple[bytes, bytes]:
    """The first and the last name with this prefix, as Redis compares them."""
    return b"[" + prefix.encode(), b"[" + prefix.encode() + b"\xff"


# Tells how old an overlay entry may be, from what this process knows about the promises of flushers.


_log = logging.getLogger(__name__)

BELIEVED: Final = 600.0
"""Seconds after which the store is asked again."""
AGAIN: Final = 5.0
"""Seconds between two tries while the store does not answer."""
ANSWER_WITHIN: Final = 2.0
"""Seconds for the store to answer."""
KNOWN: Final = 3_600.0
"""Seconds for which promises are known after they were read."""

Ask = Callable[[], Awaitable[Collection[Promise]]]


class KnownPromises:
    """The promises, up to an hour old. `shared.model.receipts.ages` allows for that."""

    def __init__(self, ask: Ask, looks: FleetView, clock: Clock) -> None:
        """`ask` is `Store.promises`. `looks` tell the store's time."""
        self._ask = ask
        self._looks = looks
        self._clock = clock
        self._promises: Collection[Promise] = ()
        self._read = self._due = float("-inf")
        self._up = True

    async def refresh(self) -> None:
        """Ask the store, if it is time to. If it does not answer, return after a few seconds without raising."""
        begun = self._clock.monotonic()
        if begun < self._due:
            return
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                self._promises = await self._ask()
        except (TransientError, TimeoutError) as error:
            said = "can't read from the store how long receipts live; after an hour of that, reads are not exact: %s"
            _log.log(logging.WARNING if self._up else logging.DEBUG, said, str(error) or "no answer in time")
            self._up, self._due = False, begun + AGAIN
        else:
            self._up, self._read, self._due = True, begun, begun + BELIEVED

    def ages(self) -> Ages | None:
        """The ages as of now. None if the promises are unknown: then nothing may be forgotten, and nothing is exact."""
        now = self._looks.now()
        if not now or self._clock.monotonic() - self._read > KNOWN:
            return None
        return ages(self._promises, now)


EVERY: Final = 1.0
"""Seconds between two steps of a member."""
LOOK_EVERY: Final = 5.0
"""Seconds between two looks of a member at the fleet, if no reading asks for one (ADR 18, rule 15)."""
NOBODY: Final = "-"
"""The owner of marks."""
MOST_WITHDRAWN: Final = 10_000
KEYS_AT_ONCE: Final = 500
YOUNG: Final = "?"
"""Follows the nonce in the epoch of views while the overlay is too young."""
NO_AGE_LIMIT: Final = Ages(NEVER, NEVER)
"""Ages by which no entry is too old or unsure."""


class _Told(NamedTuple):
    """The answer of Redis to a `ViewQuestion`."""

    question: ViewQuestion
    floor: Instant
    unsure: Collection[str] | None
    """Receipt keys of entries that may have been applied under a receipt that has expired. None if that is unknown."""
    hashes: Sequence[Any]


class RedisOverlay:
    """With a `membership` this process publishes; without one it only reads and settles.

    A task runs between `open` and `close`. For a member it does what is needed to join; for others it looks for Redis.
    """

    shared: Final = True
    kept_by_broker: Final = False

    def __init__(
        self,
        url: str,
        looks: FleetView,
        clock: Clock,
        *,
        membership: Membership | None,
        store: Commits,
        every: float = EVERY,
        look_every: float = LOOK_EVERY,
        patience: float = APART_AFTER,
        silent: float = SILENT,
        timeout: float = TIMEOUT,
        most_entries: int = MOST_COPIED,
    ) -> None:
        """Times are in seconds."""
        self._looks = looks
        self._clock = clock
        self._server = server = Server(url, Links(url, timeout))
        self._copy = Copy(most_entries)
        self._views = Views()
        self._member: Member | None = None
        if membership is not None:
            self._member = Member(server, membership, looks, clock, self._copy, patience=patience)
            self._gone_members = GoneMembers(server, looks, clock, membership.id, silent)
            self._stopped_members = StoppedMembers(looks, store, clock)
        self._known = KnownPromises(store.promises, looks, clock)
        self._every = every
        self._look_every = look_every
        self._withdrawn: list[tuple[str, str]] = []
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start, and wait for the first step, which finds out whether Redis and the store answer. They may be away."""
        with contextlib.suppress(TransientError):
            await self._step()
        self._task = asyncio.create_task(self._run(), name="overlay in Redis")

    async def close(self, patience: float = CHANGE_WITHIN) -> None:
        """Stop. Call it after the last `entered` block has ended. For `patience` seconds, a member tries to say in the
        store what it leaves behind.
        """
        await ended(self._task)
        if self._member is not None:
            with contextlib.suppress(TransientError):
                if self._server.up:
                    await self._flush_withdrawn()
            try:
                await self._member.leave(patience)
            except TransientError as error:
                _log.warning(
                    "process %s can't say in the store that it has stopped: %s; if reads stay inexact, wait until all"
                    " that it accepted is applied, then run countersink doctor --trust-overlay %s",
                    self._member.membership.id,
                    error,
                    self._member.membership.id,
                )
        await self._looks.close()
        await self._server.close()

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        """If Redis is away, or has too many entries to show, views come from the copy and are not exact."""
        names = [*dict.fromkeys(counters)]
        shown: Mapping[str, View] = {}
        if self._server.up:
            with contextlib.suppress(AwayError):
                shown, _ = await self._shown(partial(self._told_of, names), self._views)
        if len(shown) == len(names) and self._has_joined():
            return shown
        here = self._copy.view(names)
        return {name: both(shown[name], here[name]) if name in shown else here[name] for name in names}

    async def under(self, prefixes: Collection[str]) -> tuple[Mapping[str, View], View]:
        if self._server.up:
            with contextlib.suppress(AwayError):
                shown, of = await self._shown(partial(self._told_under, prefixes), Views())
                if self._has_joined():
                    return shown, View((), of.floor, next(_VERSIONS), of.exact, of.epoch)
        names = [name for prefix in prefixes for name in await self.names(prefix)]
        return await self.view(names), View((), BEGINNING, next(_VERSIONS), exact=False)

    def _has_joined(self) -> bool:
        """Whether all that this process has accepted is in Redis."""
        return self._member is None or self._member.joined()

    async def _shown(
        self, ask: Callable[[NamedOverlay], Awaitable[_Told | None]], views: Views
    ) -> tuple[Mapping[str, View], Context]:
        """Views from Redis, with a look at the fleet that began after the question, or is fresh enough.
        See ADR 18, rule 2.
        """
        overlay, look = self._named(), self._looks.fresh()
        if look is None:
            look, told = await asyncio.gather(self._looks.get(), ask(overlay))
        else:
            told = await ask(overlay)
        if look is not None and look.fleet.overlay != overlay:
            overlay, told = look.fleet.overlay, await ask(look.fleet.overlay)
        if told is None:
            raise AwayError("the fleet has not named an overlay yet")
        changed = look.changed if look is not None else 0
        young = self._looks.young() > 0
        exact = look is not None and look.fleet.whole() and told.unsure is not None and not young
        epoch = f"{overlay.nonce}{YOUNG * young}"  # what is read until then is void afterwards
        of = Context(epoch, exact, max(told.floor, changed))
        return views.answer(told.question, told.hashes, of, told.unsure or ()), of

    async def _told_of(self, names: Sequence[str], overlay: NamedOverlay) -> _Told | None:
        question = self._views.question(names, overlay.nonce)
        return await self._told(scripts.VIEW, overlay, question, [*question.arguments()])

    async def _told_under(self, prefixes: Collection[str], overlay: NamedOverlay) -> _Told | None:
        bounds = [bound for prefix in prefixes for bound in bounds_of(prefix)]
        told = await self._told(scripts.UNDER, overlay, ViewQuestion((), {}), bounds)
        if told is None:
            return None
        names = [name.decode() for name in told.hashes[::2]]
        return told._replace(question=ViewQuestion(names, {}), hashes=told.hashes[1::2])

    async def _told(
        self, script: Script, overlay: NamedOverlay, question: ViewQuestion, arguments: Sequence[Any]
    ) -> _Told | None:
        """What the overlay answers; None if the fleet has not named one yet."""
        if not overlay.epoch:
            return None
        while True:
            ages = self._known.ages()
            reply = await self._server.ask(script, overlay, *(ages or NO_AGE_LIMIT), *arguments)
            if reply[0] == b"ok":
                few = ages is not None and len(reply[2]) < scripts.MOST_UNSURE
                unsure = frozenset(key.decode() for key in reply[2]) if few else None
                return _Told(question, Instant(int(reply[1])), unsure, reply[3:])
            if reply[0] != b"old":
                raise AwayError("Redis is not the overlay of the fleet, or has too much to show")
            await self._server.ask(scripts.FORGET, overlay, (ages or NO_AGE_LIMIT).over)

    def _named(self) -> NamedOverlay:
        return self._looks.last.fleet.overlay if self._looks.last is not None else NamedOverlay()

    async def _told_by(self, script: Script, *arguments: Any) -> Sequence[Any] | None:
        """What the script answers on the overlay of the fleet; None if Redis is away, or is not the overlay."""
        overlay = self._named()
        if self._server.up and overlay.epoch:
            with contextlib.suppress(AwayError):
                reply = await self._server.ask(script, overlay, *arguments)
                if reply[0] == b"ok":
                    found: Sequence[Any] = reply[1]
                    return found
        return None

    async def names(
        self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        before = await self._exact_state() if exact else None
        await self._looks.get()  # the fleet may have named another overlay meanwhile
        first, last = bounds_of(prefix)
        if after and after >= prefix:
            first = b"(" + after.encode()
        found = await self._told_by(scripts.NAMES, first, last, -1 if limit is None else limit)
        if exact and (found is None or not before or before != await self._exact_state()):
            raise InexactError(UNSEEN)
        return self._copy.pending.names(prefix, after, limit) if found is None else [name.decode() for name in found]

    async def _exact_state(self) -> tuple[str, Instant] | None:
        """If views are exact now, what changes when they have not been exact since."""
        view, look = (await self.view((ANY_NAME,)))[ANY_NAME], self._looks.last
        return (view.epoch, look.changed) if view.exact and look is not None else None

    async def holds(self, keys: Collection[str]) -> Collection[str]:
        asked, here = [*keys], self._copy.pending.holds(keys)
        if not asked or (found := await self._told_by(scripts.HOLDS, *asked)) is None:
            return here
        held = {key for key, there in zip(asked, found, strict=True) if there}
        return held if self._has_joined() else held | here

    @asynccontextmanager
    async def entered(self, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
        if (member := self._member) is None:
            raise RuntimeError("only a member publishes")
        member.membership.check()
        tries = self._copy.add(envelopes, self._clock.monotonic(), self._looks.now())
        try:
            if self._server.up:
                await member.announce(tries)
            yield
        except BaseException as error:
            self._withdraw(tries)
            if isinstance(error, Exception) and self._server.up:
                with contextlib.suppress(AwayError):
                    await self._flush_withdrawn()
            raise
        await member.confirm(tries)  # if it fails they stay: others may have seen them, and a set may rely on them

    def _withdraw(self, tries: Sequence[PublishTry]) -> None:
        """Withdraw from the copy now, from Redis soon. What stays there counts only if its envelope was published."""
        for publish_try in tries:
            self._copy.withdraw(publish_try)
            self._withdrawn.append(publish_try.place())
        del self._withdrawn[:-MOST_WITHDRAWN]
        if self._server.up:
            self._server.wake.set()

    async def _flush_withdrawn(self) -> None:
        while self._withdrawn and (overlay := self._named()).epoch:
            some, self._withdrawn = self._withdrawn[:100], self._withdrawn[100:]
            try:
                await self._server.ask(scripts.WITHDRAW, overlay, *(part for pair in some for part in pair))
            except BaseException:
                self._withdrawn = some + self._withdrawn
                raise

    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        keys = [*settled]
        self._copy.settle(keys, time)
        if not keys or await self._settled_in(self._named(), keys, time, epoch):
            return
        look = await self._looks.get(0)  # the fleet may have named another overlay meanwhile
        overlay = None if look is None else look.fleet.overlay
        if overlay is None or (overlay.epoch and not await self._settled_in(overlay, keys, time, epoch)):
            raise AwayError("Redis is not the overlay of the fleet")

    async def _settled_in(self, overlay: NamedOverlay, keys: list[str], time: Instant, epoch: str) -> bool:
        """Settle them there, and take those that are done from `keys`. Returns whether it is the fleet's overlay."""
        if epoch and overlay.nonce != epoch:
            raise AwayError("the fleet has named another overlay meanwhile")
        while keys and overlay.epoch:
            reply = await self._server.ask(scripts.SETTLE, overlay, time, *keys[:KEYS_AT_ONCE])
            if reply[0] != b"ok":
                return False
            del keys[: reply[1]]
        return bool(overlay.epoch)

    async def mark(self, receipt: str, counters: Collection[str], epoch: str | None = None) -> str | None:
        """Enter a try that adds nothing and is never confirmed."""
        try:
            overlay = await self._ripe(LOOK_EVERY) if epoch is None else self._named()
            if epoch is not None and overlay.nonce != epoch:
                raise InexactError("the fleet has just named another overlay: try again")
            if overlay.epoch:
                own = self._copy.mark(receipt, counters, self._clock.monotonic(), self._looks.now())
                await self._do(scripts.WRITE, overlay, NOBODY, 0, 0, *own.arguments())
        except TransientError as error:
            raise InexactError(f"nothing can be changed while readers can't be told of it: {error}") from error
        return overlay.nonce

    async def changed(self, counters: Collection[str], time: Instant, receipt: str = "") -> None:
        """Raise the floors in the overlay that the fleet names now, since its readers see none of an earlier one."""
        for counter in counters:
            self._copy.pending.raise_floor(counter, time)
        overlay = await self._ripe(0)
        for some in pages(counters if overlay.epoch else (), KEYS_AT_ONCE):
            await self._do(scripts.RAISE, overlay, time, receipt, *some)

    async def _do(self, script: Script, overlay: NamedOverlay, *arguments: Any) -> None:
        """Run a script that changes the overlay. `AwayError` if that is not there."""
        if (await self._server.ask(script, overlay, *arguments))[0] != b"ok":
            raise AwayError("Redis is not the overlay of the fleet")

    async def _ripe(self, age: float) -> NamedOverlay:
        """The overlay that the fleet names, by a look of this age at most, once no reading uses an earlier one."""
        while True:
            look = await self._looks.get(age)
            if look is None:
                raise TransientError("the store does not say which overlay the fleet uses: try again")
            if not (young := self._looks.young()):
                return look.fleet.overlay
            await asyncio.sleep(young)

    async def unsettled(self, limit: int) -> Mapping[str, str]:
        if (found := await self._told_by(scripts.UNSETTLED, limit)) is not None:
            return {key.decode(): "" for key in found}
        return {one.envelope.key: "" for one in self._copy.due(self._clock.monotonic(), limit)}

    def backlog(self) -> Backlog:
        return self._copy.backlog(self._clock.monotonic())

    @property
    def crowded(self) -> bool:
        return self._copy.crowded

    def check(self) -> None:
        if self._member is not None:
            self._member.membership.check()

    async def _run(self) -> None:
        while True:
            pause = self._every if self._server.up else self._every * random.uniform(0.2, 1.0)  # noqa: S311
            await set_within(self._server.wake, pause)
            woken = self._server.wake.is_set()
            self._server.wake.clear()
            try:
                await self._step(woken=woken)
            except AwayError:
                continue
            except TransientError as error:
                _log.warning("the overlay waits for the store: %s", error)
            except Exception:  # a bug; but without this task nothing would be exact or accepted again
                _log.exception("unexpected error in the overlay in Redis, which continues")

    async def _step(self, *, woken: bool = True) -> None:
        look = await self._looks.get(self._every / 2 if woken else self._look_every)
        if look is None:
            return
        await self._known.refresh()
        member = self._member
        if member is None:
            await self._server.who(look.fleet.overlay)
            self._server.found()
            return
        look = await member.step(look)
        if (overlay := member.overlay) is None:
            return
        await self._flush_withdrawn()
        await member.remove_settled()
        await self._server.ask(scripts.FORGET, overlay, (self._known.ages() or NO_AGE_LIMIT).over)
        reply = await self._server.ask(HEARD, overlay, member.membership.id)
        if reply[0] == b"ok":
            self._server.found()
            flat = [one.decode() for one in reply[1]]
            await self._gone_members.tidy(look, dict(zip(flat[::2], flat[1::2], strict=True)))
            await self._stopped_members.tidy(look)
        else:
            member.lose()

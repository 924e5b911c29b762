"""Commits one closed window, measures it, acknowledges its messages, and repeats until all of them are settled.

It renews this flusher's promise before receipts are written (`PromiseKeeper`), and chooses a shard for each sum
(`ShardBook`). `FlushTools` is what a flush uses.
"""

import logging
import random
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from math import inf
from typing import Final

from flusher.flush.window import MOST_IN_COMMIT, MOST_IN_COMMIT_OF_FILE, TOO_OLD, Held, Plan, Window, notes_of
from flusher.shards import Growth
from shared.model.buckets import BEGINNING, NEVER, BrokerMillis, Instant, Rules, StoreMillis, by_time_of
from shared.model.dead_letters import with_body
from shared.model.errors import (
    BROKEN,
    AlreadyAppliedError,
    ContendedError,
    GoneError,
    LateError,
    RefusedError,
    ShardFullError,
    ShrunkError,
    TransientError,
    amount,
    said_of_bug,
)
from shared.model.receipts import (
    CLIENT_IDS_REMEMBERED,
    FORCE,
    SILENT,
    Promise,
    Promises,
    Tally,
    notes_of_commit,
    read_note,
)
from shared.model.words import APPLIED, DEAD, Bounds, Commit, Envelope, FirstAdds, Receipt, Receipts, ShardAdd, add_to
from shared.ports.broker import DeadLetters, Subscription
from shared.ports.overlay import Overlay
from shared.ports.store import PromiseBook, ShardNumbers, Store
from shared.runtime import metrics
from shared.runtime.clock import Clock
from shared.runtime.retry import Backoff
from shared.runtime.traces import SpanLinks, Traces, sampled_in

BELIEVED: Final = 60.0
"""Seconds after which the promises are read again: a flusher with other settings may have started."""


class PromiseKeeper:
    """Tells how long receipts live, and until when envelopes may be applied."""

    def __init__(self, store: PromiseBook, clock: Clock, ours: Promise) -> None:
        self._store = store
        self._clock = clock
        self._promises = Promises(ours)
        self._read = float("-inf")

    async def promises(self) -> Promises:
        """The promises, at most a minute old."""
        now = self._clock.monotonic()
        if now - self._read > BELIEVED:
            self._promises = Promises(self._promises.ours, await self._store.promises())
            self._read = now
        return self._promises

    async def renew(self) -> None:
        """Renew our promise. Call it before receipts are written; after a `TransientError` none may be."""
        promises = await self.promises()
        mine = promises.renew(await self._store.now())
        if mine is None:
            return
        try:
            await self._store.promise(mine)
        except ContendedError:  # another flusher has just written, perhaps the same
            self._read = float("-inf")
            raise
        self._promises = Promises(promises.ours, await self._store.promises())

    def expires(self, made: StoreMillis, *, of_client: bool) -> StoreMillis:
        return self._promises.expires(made, of_client=of_client)


# Chooses the shards for sums, and learns from what commits say of them.


MOST_NUMBERS: Final = 100_000
KNOWN: Final = 1
"""`ShardAdd.known` where no number was looked up: a counter that is there has a shard, and an add gives it no more than
it needs."""
FRESH: Final = 60.0
"""Seconds for which a number is used without a look. An old one is safe: new shards are just used later."""


class ShardBook:
    """Numbers of shards, and which shards are full."""

    def __init__(
        self, store: ShardNumbers, clock: Clock, new_counter: int, pick: Callable[[int], int] = random.randrange
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_counter = new_counter
        self._pick = pick
        self._numbers: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._full: dict[str, frozenset[int]] = {}

    async def adds(self, sums: Mapping[str, int]) -> tuple[ShardAdd, ...]:
        """For each sum, an add to a random shard of its counter that is not full."""
        now = self._clock.monotonic()
        unknown = [name for name in sums if name not in self._numbers or self._numbers[name][1] < now]
        if unknown:
            found = await self._store.shards(unknown)
            for name in unknown:
                self._numbers[name] = (found.get(name, 0), now + FRESH)
                self._numbers.move_to_end(name)
        adds = tuple([self._add(name, delta) for name, delta in sums.items()])
        while len(self._numbers) > MOST_NUMBERS:
            forgotten, _ = self._numbers.popitem(last=False)
            self._full.pop(forgotten, None)
        return adds

    def full(self, shards: Iterable[tuple[str, int]]) -> None:
        """These shards are full. Look at the numbers again: others may have made new shards, and filled them, too."""
        for name, index in shards:
            self._full[name] = self._full.get(name, frozenset()) | {index}
            number, _ = self._numbers.get(name, (0, 0.0))
            self._numbers[name] = (number, -inf)

    def done(self, adds: Iterable[ShardAdd]) -> None:
        """These adds were applied, so their counters have a config now."""
        for name, _, _, num_shards, _ in adds:
            self.raised(name, num_shards)

    def raised(self, name: str, number: int) -> None:
        """The counter has at least this many shards now."""
        known, until = self._numbers.get(name, (0, 0.0))
        if known < number:
            self._numbers[name] = (number, until)

    def shrunk(self, names: Iterable[str]) -> None:
        """These counters have fewer shards than believed: forget their numbers."""
        for name in names:
            self._numbers.pop(name, None)
            self._full.pop(name, None)

    def _add(self, name: str, delta: int) -> ShardAdd:
        number = self._numbers[name][0] or self._new_counter
        return add_to(name, delta, number, new=number, full=self._full.get(name, frozenset()), pick=self._pick)


class FirstShards:
    """The book of a file. It has one writer, so more shards take no more writes: all sums of a counter go to its first
    shard, and to the next one if that is full. So no number of shards is looked up.
    """

    def __init__(self, new_counter: int) -> None:
        self._new_counter = new_counter
        self._full: dict[str, int] = {}
        """The first shard that is not known to be full, of the counters for which it is another."""

    async def adds(self, sums: Mapping[str, int]) -> Sequence[ShardAdd]:
        """For each sum, an add to the first shard of its counter that is not known to be full."""
        if self._full.keys() & sums.keys():
            return tuple([self._add(name, delta, self._full.get(name, 0)) for name, delta in sums.items()])
        return FirstAdds(sums, self._new_counter, KNOWN)

    def _add(self, name: str, delta: int, shard: int) -> ShardAdd:
        return ShardAdd(name, shard, delta, max(self._new_counter, shard + 1), KNOWN)

    def full(self, shards: Iterable[tuple[str, int]]) -> None:
        for name, index in shards:
            self._full[name] = index + 1

    def done(self, adds: Iterable[ShardAdd]) -> None:
        """Do nothing: it knows no numbers."""

    def raised(self, name: str, number: int) -> None:
        """Do nothing, like `done`."""

    def shrunk(self, names: Iterable[str]) -> None:
        for name in names:
            self._full.pop(name, None)


@dataclass(frozen=True, slots=True)
class FlushTools:
    """The parts of one flusher."""

    store: Store
    subscription: Subscription
    overlay: Overlay
    book: ShardBook | FirstShards
    clock: Clock
    promise_keeper: PromiseKeeper
    backoff: Callable[[], Backoff]
    one_file: bool = False
    """Whether broker and store are one file. The file shows which messages are settled, so no message is too old.
    Elsewhere receipts expire by the clock alone. A message whose receipt may have expired can't be judged there.
    """
    growth: Growth | None = None
    """Adds shards. None for a file, which has one writer, so more shards would not take more writes."""
    rules: Rules = ()
    traces: Traces | None = None


async def apply(commit: Commit, envelopes: Sequence[Envelope], parts: FlushTools) -> Instant:
    """Apply the commit of these envelopes, and tell `growth` how long it took and whether it collided."""
    store, growth, clock = parts.store, parts.growth, parts.clock
    with _span(parts.traces, envelopes):
        if growth is None:
            return await store.apply(commit)
        begun = clock.monotonic()
        growth.tries()
        try:
            time = await store.apply(commit)
        except ContendedError:
            ended = clock.monotonic()
            growth.contended(commit.adds, ended)
            raise
        ended = clock.monotonic()
        growth.wrote(commit.adds, ended - begun, ended)
        return time


@contextmanager
def _span(traces: Traces | None, envelopes: Sequence[Envelope]) -> Iterator[None]:
    """The code inside it is a span, if one of the envelopes was published in one."""
    if traces is None:
        yield
        return
    links = SpanLinks()
    for envelope in envelopes:
        if (published := sampled_in(envelope.traceparent)) is not None:
            links.add(published)
    if not links.spans:
        yield
        return
    span = traces.commit(links, len(envelopes))
    try:
        yield
    except BaseException as error:
        span.end(error)
        raise
    span.end()


_log = logging.getLogger(__name__)

ACKS_AT_ONCE = 1_000
MOST_BUGS: Final = 100
"""Envelopes that are given up for bugs in one window. If more meet one, the process ends: they are not to blame."""
BEFORE: Final = "given up before"
"""The reason of an envelope whose receipt is found dead."""
LEFT_AS_UNSURE: Final = f"{TOO_OLD}: replay it with --too-old if you know that it has not"
STOOD_STILL: Final = "the replay took more than 3 hours, or stood still: run it again"


class Flush:
    """Commits a window, whatever fails, until the receipts of all envelopes are known. A crash is always safe."""

    def __init__(
        self,
        window: Window,
        tools: FlushTools,
        letters: DeadLetters | None = None,
        looked: StoreMillis | None = None,
    ) -> None:
        """`letters`: where the messages come from, if it is not the subscription. `looked`: when a replay began to read
        their receipts.
        """
        self.window = window
        self.left: dict[str, str] = {}
        """Letters that a replay leaves, by message id, and why."""
        self._looked = looked
        self.counted: set[str] = set()
        """Receipts that its commits are known to have written for letters."""
        self._tools = tools
        self._letters = letters
        self._most = 1 << 30
        """Envelopes in a commit."""
        self._bugs = 0
        self._floor = BEGINNING
        self._now = NEVER
        """The latest known time of the store."""
        self._holds_until = NEVER
        """Until when what is known of receipts holds."""
        self._sure_until = NEVER
        """The `sure_until` of a body whose letter is replayed whatever its age."""
        self.why: dict[str, str] = {}
        self._id = secrets.token_hex(6)
        """Each receipt has this, so that a commit whose outcome was unknown is recognised and counted."""

    async def run(self, longest: float = inf) -> None:
        """Return when all messages are acknowledged or buried. After an exception they are delivered again.

        Errors that may pass are retried for `longest` seconds.
        """
        backoff = self._tools.backoff()
        begun = self._tools.clock.monotonic()
        while self.window.unsettled():
            try:
                await self._step()
            except LateError as error:
                metrics.FLUSH_RETRIES.labels("late").inc()
                self._now = max(self._now, error.reached)
                await backoff.wait()
            except GoneError as error:
                metrics.FLUSH_RETRIES.labels("gone").inc()
                _log.warning("another flusher has handled these messages meanwhile; nothing is lost: %s", error)
                self.window.drop(error.messages)
            except TransientError as error:
                if self._tools.clock.monotonic() - begun >= longest:
                    raise
                metrics.FLUSH_RETRIES.labels(type(error).__name__).inc()
                _log.warning("a commit failed and is retried: %s", error)
                await backoff.wait()
            else:
                backoff.reset()
        await self._settle()

    async def _step(self) -> None:
        """Give up what came too late, then commit as much as fits of what is left."""
        self._now = max(self._now, await self._tools.store.now())
        await self._tools.promise_keeper.renew()
        promises = await self._tools.promise_keeper.promises()
        self.window.judge(self._now, promises.until)
        self._holds_until = promises.in_force_until()
        self._sure_until = NEVER if self._tools.one_file else promises.until(BrokerMillis(self._now))
        if self._looked is not None:
            self._holds_until = min(self._holds_until, StoreMillis(self._looked + FORCE))
            if self._now > self._holds_until:
                self.left |= {held.delivery.message_id: STOOD_STILL for held in self.window.held}
                self.window.drop(self.left)
        for held, envelope, why in self.window.late():  # each becomes known when it is given up
            if why == TOO_OLD and self._letters is not None:
                self._leave(held, envelope)
                continue
            message = [held.delivery.message_id] if held.delivery.token else []
            await self._give_up(envelope, why, self._bounds(None, message))
        room = MOST_IN_COMMIT_OF_FILE if self._tools.one_file else MOST_IN_COMMIT
        plan = self.window.plan(self._most, self._tools.rules, room)
        if plan.envelopes:
            try:
                await self._commit(plan)
            except (TransientError, LateError, GoneError, *BROKEN):
                raise
            except Exception as error:
                await self._met_bug(plan, error)

    async def _commit(self, plan: Plan) -> None:
        tools = self._tools
        begun = tools.clock.monotonic()
        adds = await tools.book.adds(plan.sums)
        ids = {one.key: one.id for one in plan.envelopes if one.is_minted}
        expires = {of_client: self._expires(of_client=of_client) for of_client in (False, True)}
        receipts = [
            Receipt(key, expires[of_client], APPLIED, note, envelope=ids.get(key, ""))
            for (key, of_client), note in zip(plan.receipts.items(), notes_of(plan, self._id), strict=True)
        ]
        receipts += map(Receipt, plan.ids, repeat(expires[True]))
        new = tuple([one for one in receipts if one.key not in self.window.dead])
        dead = [one for one in receipts if one.key in self.window.dead]
        revived = tuple([one._replace(note=one.note or SILENT) for one in dead])
        try:
            bounds = self._bounds(plan.until, plan.messages)
            wall = int(tools.clock.now() * 1_000)
            by_time = by_time_of(plan.rules, plan.buckets, adds, wall, self._now)
            commit = Commit(new, adds, revived, plan.tally, bounds=bounds, by_time=by_time)
            time = await apply(commit, plan.envelopes, tools)
        except AlreadyAppliedError:
            metrics.FLUSH_RETRIES.labels("receipts exist").inc()
            await self._look_up(plan.receipt_keys(), plan.receipts)
        except ShardFullError as error:
            metrics.FLUSH_RETRIES.labels("shards are full").inc()
            tools.book.full(error.shards)
        except ShrunkError as error:
            metrics.FLUSH_RETRIES.labels("compacted").inc()
            tools.book.shrunk(error.counters)
        except RefusedError as error:
            await self._isolate(plan, str(error))
        else:
            tools.book.done(adds)
            metrics.FLUSHES.inc()
            metrics.FLUSH_SECONDS.observe(tools.clock.monotonic() - begun)
            self._floor = max(self._floor, time)
            self.window.learn(plan.receipt_keys(), APPLIED, plan.attempts)
            if self._letters is not None:
                self.counted.update(plan.receipt_keys())
            self._count(plan.tally)
            self._most *= 2

    def _expires(self, *, of_client: bool) -> StoreMillis:
        """When a receipt made now expires: by the store's clock or the broker's, whichever is later.

        A message in the file keeps the receipts of the ids in it, however long it waits. So these need not live longer.
        """
        expires = self._tools.promise_keeper.expires
        if not self._tools.one_file:
            return expires(StoreMillis(max(self._now, self.window.newest)), of_client=of_client)
        remembered = self._now + CLIENT_IDS_REMEMBERED if of_client else NEVER
        return StoreMillis(max(expires(self._now, of_client=False), remembered))

    def _leave(self, held: Held, envelope: Envelope) -> None:
        """Leave it in its letter, whose other envelopes may count."""
        self.left[held.delivery.message_id] = LEFT_AS_UNSURE
        key = envelope.key
        held.envelopes = tuple([one for one in held.envelopes if key not in {one.key, one.as_second_use().key}])

    def _bounds(self, until: StoreMillis | None, messages: Sequence[str]) -> Bounds:
        until = self._holds_until if until is None else min(until, self._holds_until)
        return Bounds(until, tuple(messages) if self._tools.one_file else ())

    async def _look_up(self, keys: Collection[str], envelopes: Collection[str]) -> None:
        """Learn which receipts exist. Not all of them need to; the others are committed again."""
        receipts = await self._tools.store.receipts(keys)
        self.learn(keys, receipts)
        for key, receipt in receipts.found.items():
            if key in envelopes and receipt.state == APPLIED:
                metrics.ALREADY_APPLIED.inc()

    def learn(self, keys: Collection[str], receipts: Receipts) -> None:
        """Take the receipts that were found under these keys."""
        self._floor = max(self._floor, receipts.time)
        for key, receipt in receipts.found.items():
            note = read_note(receipt.note)
            if note.commit == self._id and key not in self.window.known:
                self._count(note.tally)  # our own commit, whose answer was lost
        self.window.found(keys, receipts.found)

    async def _met_bug(self, plan: Plan, error: Exception) -> None:
        """Find the envelope that meets the bug. The commit may have happened all the same: receipts tell."""
        metrics.FLUSH_RETRIES.labels("bug").inc()
        _log.error("a commit of %s hit an unexpected error", amount(len(plan.envelopes), "envelope"), exc_info=error)
        self._bugs += len(plan.envelopes) == 1
        if self._bugs > MOST_BUGS:
            raise error
        await self._isolate(plan, said_of_bug(error))

    async def _isolate(self, plan: Plan, why: str) -> None:
        """Halve the commit until the guilty envelope is alone and is given up; all others are counted."""
        if len(plan.envelopes) > 1:
            self._most = len(plan.envelopes) // 2
        else:
            await self._give_up(plan.envelopes[0], why, self._bounds(plan.until, plan.messages))

    async def _give_up(self, envelope: Envelope, why: str, bounds: Bounds) -> None:
        """Write a dead receipt, before the dead letter: no other flusher must apply the envelope meanwhile."""
        key = envelope.key
        dead, tally = self._dead(envelope, why), self.window.buries(envelope)
        (note,) = notes_of_commit([envelope.attempt], self._id, tally._replace(dead=envelope.increments), {})
        again = key in self.window.dead
        try:
            new = () if again else (dead._replace(note=note),)
            await self._bury_in_store(Commit(new, (), (dead,) if again else (), tally, bounds=bounds))
        except AlreadyAppliedError:
            await self._look_up([key], {key})
        else:
            self.why[key] = why
            self.window.learn([key], DEAD, {key: envelope.attempt})
            self._count(tally)

    async def _bury_in_store(self, commit: Commit) -> None:
        """Apply a commit with dead receipts. From then on readers find their bodies in the store."""
        self._floor = max(self._floor, await self._tools.store.apply(commit))
        self.window.kept.update(one.key for one in (*commit.receipts, *commit.revived) if one.body)

    def _dead(self, envelope: Envelope, why: str) -> Receipt:
        """A dead receipt. It has a body if it is certain that the envelope was not applied."""
        dead = Receipt(envelope.key, self._expires(of_client=envelope.retried), DEAD)
        if (body := self.window.bodies.get(envelope.key)) is not None:
            return with_body(dead, body.envelope, why, body.letter.delivery.published, body.sure_until)
        if (held := self.window.holder(envelope)) is None:
            return dead
        return with_body(dead, envelope, why, held.delivery.published, held.until or self._sure_until)

    async def _settle(self) -> None:
        dead = [held for held in self.window.settled()[1] if await self._still_dead(held)]
        for held in dead:
            await self._bury(held)
        done = [held for held in self.window.settled()[0] if held.delivery.message_id not in self.left]
        for begin in range(0, len(done), ACKS_AT_ONCE):
            await self._ack(done[begin : begin + ACKS_AT_ONCE])
        known, kept = self.window.known, self.window.kept
        keys = [one.key for held in dead for one in held.envelopes]
        await self._settle_entries([key for key in keys if key in kept or known.get(key, DEAD) != DEAD])

    async def _still_dead(self, held: Held) -> bool:
        """Renew dead receipts without a body, so that they live as long as the letter. Returns if it is still dead:
        a replay may have been faster. The envelope came too late if its receipt has no body.
        """
        try:
            for envelope in self.window.given_up(held):
                if envelope.key not in self.why and envelope.key not in self.window.kept:
                    await self._renew(envelope)
        except TransientError as error:
            _log.warning("message %s will be delivered again: %s", held.delivery.message_id, error)
            return False
        return bool(self.window.given_up(held))

    async def _renew(self, envelope: Envelope) -> None:
        key, dead, holder = envelope.key, self._dead(envelope, BEFORE), self.window.holder(envelope)
        until = holder.until if dead.body and holder is not None else None
        try:
            await self._bury_in_store(Commit((), (), (dead,), bounds=self._bounds(until, ())))
        except LateError:
            raise TransientError("the process stood still") from None
        except AlreadyAppliedError:
            await self._look_up([key], {key})
            if self.window.known[key] == DEAD:
                raise TransientError("its dead receipt has expired meanwhile") from None

    async def _bury(self, held: Held) -> None:
        whys = [self.why[one.key] for one in self.window.given_up(held) if one.key in self.why]
        why = whys[0] if whys else TOO_OLD if held.late else BEFORE
        try:
            if self._letters is not None:
                if held.delivery.token:
                    await self._letters.bury(held.delivery, why)
                return
            metrics.DEAD.labels("refused").inc()
            _log.error("message %s is now a dead letter: %s", held.delivery.message_id, why)
            await self._tools.subscription.bury(held.delivery, why)
        except TransientError as error:
            _log.warning("a message could not become a dead letter, and will be delivered again: %s", error)

    async def _ack(self, done: Sequence[Held]) -> None:
        """Acknowledge messages after their commit, then settle their overlay entries. Failures are not retried: a
        message comes again and its receipt tells; readers settle entries that are left.
        """
        keys = [envelope.key for held in done for envelope in held.envelopes]
        try:
            if tokens := [held.delivery.token for held in done if held.delivery.token]:
                await (self._letters or self._tools.subscription).ack(tokens, self._floor)
        except TransientError as error:
            _log.warning("an ack failed; %s will be delivered again: %s", amount(len(done), "message"), error)
        await self._settle_entries(keys)

    async def _settle_entries(self, keys: Collection[str]) -> None:
        try:
            if keys:
                await self._tools.overlay.settle(keys, self._floor)
        except TransientError as error:
            _log.debug("overlay entries could not be removed; reads will remove them: %s", error)

    def _count(self, tally: Tally) -> None:
        """Count a commit, once. In the metrics, what a replay counts stays a dead letter: they never go down."""
        if self._letters is None:
            metrics.APPLIED.inc(tally.applied)
            metrics.DEDUPLICATED.inc(tally.deduplicated)
            metrics.DEAD_INCREMENTS.inc(max(tally.dead, 0))
            metrics.FOREIGN.inc(tally.foreign)

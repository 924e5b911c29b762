"""What became of increments: the state of a receipt, and waiting until it is applied."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal

from ingest.api.fields import Json
from ingest.http.problems import Problem
from ingest.http.requests import Call, unescape
from shared.http.shares import FairLock, Places
from shared.model.errors import TransientError
from shared.model.receipts import Note, key_of_envelope, read_note
from shared.model.words import APPLIED, DEAD, DROPPED, MAX_ID_BYTES, pages
from shared.ports.overlay import Overlay
from shared.ports.store import ReceiptBook
from shared.runtime.clock import Clock
from shared.runtime.retry import ended, set_within

_log = logging.getLogger(__name__)

MOST_WAITS: Final = 8_192
"""Requests that wait at once. A tenant may have as many as are still free: half of them if it is alone."""
POLL: Final = 0.03
"""Longest time between two looks at what the requests wait for, in seconds."""
LEISURE: Final = 4
"""The pause after a look is at least this many times as long as the look: it takes at most 1/5 of the process."""
LONGEST_PAUSE: Final = 1.0
"""Seconds."""
MOST_RECEIPTS: Final = 1_000
"""Receipts that are looked up at once."""
HELD: Final = 2.0
"""Seconds after which a wait asks the store, though the overlay holds what it waits for, and the time between two such
looks. A flusher settles what it applied, but that may fail, and is tried again only after 20 seconds.
"""
WOKEN: Final = 50
"""Requests that are answered before other tasks get a turn."""
MOST_IN_RECEIPT: Final = 500
"""Envelopes that a receipt may name. No answer has a receipt with more: see `MOST_EVENTS` and `MAX_ITEMS`."""
RECEIPT: Final = {
    "type": "string",
    "minLength": 1,
    # ASCII: the ids of one or more envelopes with dots between them.
    "pattern": r"^[\u0000-\u002d\u002f-\u007f]+(\.[\u0000-\u002d\u002f-\u007f]+)*$",
}


class Receipt(Json):
    """The state. A batch is applied when all its parts are. Unknown does not mean lost."""

    receipt: str
    state: Literal["pending", "applied", "dead-lettered", "unknown"]


class Tracking:
    """Asks the overlay before the store. Envelopes move from the first to the second, so none is missed in both."""

    def __init__(self, store: ReceiptBook, overlay: Overlay) -> None:
        self._store = store
        self._overlay = overlay

    async def state(self, envelope_ids: Sequence[str]) -> Literal["pending", "applied", "dead-lettered", "unknown"]:
        """The state of all envelopes together: `applied` only if all are applied."""
        keys = [key_of_envelope(envelope_id) for envelope_id in envelope_ids]
        held = await self._overlay.holds(keys)
        found = (await self._store.receipts(keys)).found
        states = {found[key].state if key in found else "pending" if key in held else "unknown" for key in keys}
        if states & {DEAD, DROPPED}:
            return "dead-lettered"
        return "unknown" if "unknown" in states else "pending" if "pending" in states else "applied"

    async def ends(self, keys: Sequence[str], long: Collection[str] = ()) -> dict[str, Note | None]:
        """Which of these receipts exist while the overlay no longer holds their envelopes: their notes, or None for
        those that are not applied. An overlay that is not shared holds them for longer, as no flusher settles it.

        The store is asked for `long` in any case: these have been held for so long that settling them may have failed.
        """
        held = await self._overlay.holds(keys) if self._overlay.shared else ()
        if self._overlay.kept_by_broker:  # an entry goes with its message, so none is left to settle
            long = ()
        asked = [key for key in keys if key not in held or key in long]
        if not asked:
            return {}
        time, found = await self._store.receipts(asked)
        if left := [key for key, one in found.items() if key in held and one.settled]:
            with suppress(TransientError):  # others will do it
                await self._overlay.settle(left, time)
        return {key: read_note(one.note) if one.state == APPLIED else None for key, one in found.items()}


class ReceiptRoutes:
    def __init__(self, tracking: Tracking, turns: FairLock) -> None:
        """Tenants take `turns` to ask."""
        self._tracking = tracking
        self._turns = turns

    async def get_receipt(self, call: Call, segment: str) -> Receipt:
        """Show whether accepted increments are pending, applied or dead-lettered"""
        receipt = unescape(segment, "receipt")
        ids = receipt.split(".")
        if not receipt.isascii() or not all(ids) or (len(ids) == 1 and len(receipt) > MAX_ID_BYTES):
            raise Problem(422, "this is not a receipt: use the 'receipt' of an answer to a POST", field="receipt")
        asked = call.caller.ids_in(receipt).split(".")
        if len(asked) > MOST_IN_RECEIPT:
            raise Problem(
                422, f"a receipt names at most {MOST_IN_RECEIPT} ids, and this one names {len(asked)}", field="receipt"
            )
        async with call.caller.turn(self._turns):
            return Receipt(receipt, await self._tracking.state(asked))


class _WaitForApplied:
    __slots__ = ("begun", "end", "gone", "keys", "notes")

    def __init__(self, keys: set[str], gone: Callable[[], bool], begun: float) -> None:
        self.begun = begun
        self.keys = keys
        """The receipts that have not been found yet."""
        self.notes: dict[str, Note] = {}
        """The notes of the receipts that have been found."""
        self.gone = gone
        self.end: asyncio.Future[dict[str, Note] | None] = asyncio.get_running_loop().create_future()


class AppliedWaits:
    """Tells requests when their envelopes are applied. One task asks for all of them together."""

    def __init__(self, tracking: Tracking, clock: Clock, most: int = MOST_WAITS) -> None:
        self._tracking = tracking
        self._clock = clock
        self.places = Places(most, "requests wait with wait=applied", "send it without wait=applied")
        """Take one before anything is accepted."""
        self._waits: dict[_WaitForApplied, None] = {}
        self._given_up = False
        self._watcher: asyncio.Task[None] | None = None
        self._applied = asyncio.Event()
        self._asked_for_long = float("-inf")
        """When the store was last asked for what had been held for long."""

    async def applied(
        self, envelope_ids: Sequence[str], timeout: float, gone: Callable[[], bool]
    ) -> Mapping[str, Note] | None:
        """Wait until all envelopes are applied, and return the notes of their receipts, by key. None if that takes
        longer than `timeout` seconds or can't happen, or if the client is `gone`.
        """
        if self._given_up:
            return None
        keys = {key_of_envelope(envelope_id) for envelope_id in envelope_ids}
        wait = _WaitForApplied(keys, gone, self._clock.monotonic())
        self._waits[wait] = None
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(), name="watch for what is applied")
        try:
            async with asyncio.timeout(timeout):  # a look may take longer, if the store does not answer
                return await wait.end
        except TimeoutError:
            return None
        finally:
            self._waits.pop(wait, None)
            if not self._waits and self._watcher is not None:
                self._watcher.cancel()
                self._watcher = None

    def any(self) -> bool:
        return bool(self._waits)

    def look(self) -> None:
        """Look again at once: a flusher of this process has applied something."""
        self._applied.set()

    def give_up(self) -> None:
        """Let no request wait any longer: it is answered that its increments are accepted."""
        self._given_up = True
        for wait in self._waits:
            if not wait.end.done():
                wait.end.set_result(None)

    async def stop(self) -> None:
        watcher, self._watcher = self._watcher, None
        await ended(watcher)

    async def _watch(self) -> None:
        """Look until nobody waits. What fails for a time is looked for again; another error goes to all that wait."""
        said = ""
        while True:
            begun = self._clock.monotonic()
            self._applied.clear()
            try:
                await self._look()
                said = ""
            except TransientError as error:
                if not said:
                    _log.warning("requests wait longer, because the store could not say what is applied: %s", error)
                said = str(error)
            except Exception as error:
                for wait in self._waits:
                    if not wait.end.done():
                        wait.end.set_exception(error)
                self._watcher = None
                return
            took = self._clock.monotonic() - begun
            await asyncio.sleep(min(LEISURE * took, LONGEST_PAUSE))
            await set_within(self._applied, POLL)

    async def _look(self) -> None:
        """Look once for everything that the present waits need, then end those that have it or whose client is gone."""
        waits = list(self._waits)
        keys = {key for wait in waits for key in wait.keys}
        long: set[str] = set()
        if (now := self._clock.monotonic()) - self._asked_for_long >= HELD:
            self._asked_for_long = now
            long = {key for wait in waits if now - wait.begun >= HELD for key in wait.keys}
        ends: dict[str, Note | None] = {}
        try:
            for some in pages(keys, MOST_RECEIPTS):
                ends |= await self._tracking.ends(some, long)
                await asyncio.sleep(0)
        finally:
            await self._end(waits, ends)

    async def _end(self, waits: Sequence[_WaitForApplied], ends: Mapping[str, Note | None]) -> None:
        woken = 0
        for wait in waits:
            failed = False
            for key in wait.keys & ends.keys() if ends else ():
                wait.keys.discard(key)
                note = ends[key]
                if note is None:
                    failed = True
                else:
                    wait.notes[key] = note
            if (failed or not wait.keys or wait.gone()) and not wait.end.done():
                wait.end.set_result(None if failed or wait.keys else wait.notes)
                woken += 1
                if woken % WOKEN == 0:
                    await asyncio.sleep(0)

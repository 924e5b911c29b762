"""Checks whether Datastore can be reached and written, what the server can do, and who deletes expired receipts."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from shared.config.findings import FAIL, OK, WARN, Finding, of_clock
from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.keys import DatastorePlace
from shared.google.datastore.probe import probe
from shared.google.datastore.ttl_policy import Ttl
from shared.model.errors import CountersinkError
from shared.runtime.clock import Clock

REACH: Final = 10.0
"""Seconds for the first answer."""
_HOME: Final = "store"


class DatastoreSetup:
    """Provisions and checks the store in Datastore."""

    def __init__(
        self, client: DatastoreClient, place: DatastorePlace, clock: Clock, ttls: Sequence[Ttl], *, emulator: str
    ) -> None:
        """`ttls`: the policies that should be there. `emulator` as in DATASTORE_EMULATOR_HOST."""
        self._client = client
        self._place = place
        self._clock = clock
        self._ttls = ttls
        self._emulator = emulator
        self._name = f"Datastore {place.project}/{place.database or '(default)'}"

    async def provision(self) -> AsyncIterator[Finding]:
        if self._emulator:
            said = "an emulator has no TTL policies: flushers delete expired receipts, and so does countersink sweep"
            yield Finding(OK, _HOME, f"{self._name}: {said}")
            return
        for ttl in self._ttls:
            said = f"{self._name}: the TTL policy of {ttl.kind} is"
            if await ttl.state():
                yield Finding(OK, _HOME, f"{said} there")
            else:
                await ttl.make()
                yield Finding(OK, _HOME, f"{said} being made, which takes some minutes")

    async def findings(self) -> AsyncIterator[Finding]:
        try:
            clock = await self._look()
            abilities = await probe(self._client, self._place, self._clock)
        except (CountersinkError, TimeoutError) as error:
            why = str(error) or f"no answer within {REACH:g} seconds"
            where = f"DATASTORE_EMULATOR_HOST={self._emulator}" if self._emulator else "the network, and credentials"
            yield Finding(FAIL, _HOME, f"{self._name}: {why}; look at {where}")
            return
        yield Finding(OK, _HOME, f"{self._name}: can be read and written")
        if abilities.transforms and abilities.read_time:
            yield Finding(OK, _HOME, f"{self._name}: the server adds sums by itself, and reads are of one instant")
        else:
            said = "it ignores transforms (the older emulator): reads are not exact while anything is pending, and"
            said += " sums are read and written back, which is slower; use the Firestore emulator in Datastore mode"
            yield Finding(WARN, _HOME, f"{self._name}: {said}")
        if clock is not None:
            yield clock
        if self._emulator:
            yield Finding(OK, "receipts", "an emulator has no TTL policies: flushers delete expired receipts")
            return
        for ttl in self._ttls:
            yield await deletion(ttl)

    async def _look(self) -> Finding | None:
        """How far this machine's clock is off; None if the server does not tell its time."""
        before = self._clock.now()
        async with asyncio.timeout(REACH):
            found = await self._client.look_up([self._place.nothing()])
        after, begun = self._clock.now(), self._clock.monotonic()
        if not self._client.time.bound(begun):
            return None  # the older emulator has versions only
        server = found.time / 1_000_000
        return of_clock("clock", before - server if server < before else min(0.0, after - server))


async def deletion(ttl: Ttl) -> Finding:
    """Who deletes what has expired of the policy's kind."""
    kind = ttl.kind
    try:
        state = await ttl.state()
    except CountersinkError as error:
        return Finding(WARN, "receipts", f"can't find out whether {kind} has a TTL policy: {error}")
    if state == "ACTIVE":
        return Finding(OK, "receipts", f"a TTL policy of {kind} deletes those that have expired")
    if state:
        return Finding(WARN, "receipts", f"the TTL policy of {kind} is {state}: look again later")
    said = f"{kind} has no TTL policy, so flushers alone delete what has expired: run countersink provision"
    return Finding(WARN, "receipts", said)

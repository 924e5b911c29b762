"""Checks whether Datastore can be reached and written, what the server can do, and who deletes expired receipts."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from shared.config.findings import FAIL, OK, WARN, Finding, of_clock
from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.keys import DatastorePlace
from shared.google.datastore.probe import probe
from shared.google.datastore.store import DatastoreStore
from shared.google.datastore.ttl_policy import Ttl
from shared.model.errors import CountersinkError, SettingsError, TransientError
from shared.runtime.clock import Clock

REACH: Final = 10.0
"""Seconds for the first answer."""
_HOME: Final = "store"


async def obstacles(store: DatastoreStore) -> Sequence[str]:
    """Reasons not to start, each with what to do. `TransientError` if the server cannot be reached in time."""
    try:
        async with asyncio.timeout(REACH):
            await store.server()
    except SettingsError as error:
        return [str(error)]
    except TimeoutError as error:
        raise TransientError(f"Datastore gave no answer within {REACH:g} seconds") from error
    return []


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
            await probe(self._client, self._place, self._clock)
        except SettingsError as error:
            yield Finding(FAIL, _HOME, f"{self._name}: {error}")
            return
        except (CountersinkError, TimeoutError) as error:
            why = str(error) or f"no answer within {REACH:g} seconds"
            where = f"DATASTORE_EMULATOR_HOST={self._emulator}" if self._emulator else "the network, and credentials"
            yield Finding(FAIL, _HOME, f"{self._name}: {why}; look at {where}")
            return
        yield Finding(OK, _HOME, f"{self._name}: can be read and written")
        yield clock
        if self._emulator:
            yield Finding(OK, "receipts", "an emulator has no TTL policies: flushers delete expired receipts")
            return
        for ttl in self._ttls:
            yield await deletion(ttl)

    async def _look(self) -> Finding:
        """How far this machine's clock is off."""
        before = self._clock.now()
        async with asyncio.timeout(REACH):
            found = await self._client.look_up([self._place.nothing()])
        after = self._clock.now()
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

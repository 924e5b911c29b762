"""Checks whether Datastore can be reached and written, and what deletes expired receipts (TTL policies)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import google.auth
import google.auth.exceptions
import google.auth.transport.requests

from shared.config.findings import FAIL, OK, WARN, Finding, of_clock
from shared.datastore.client import DatastoreClient
from shared.datastore.keys import EXPIRES, DatastorePlace
from shared.datastore.store import DatastoreStore, probe
from shared.model.errors import CountersinkError, SettingsError, TransientError

# Reads and makes TTL policies, by which Google Cloud deletes what has expired: the Firestore Admin API, over REST.


GOOGLE: Final = "https://firestore.googleapis.com"
LONGEST: Final = 10.0
"""Seconds for one request."""
_SCOPE: Final = "https://www.googleapis.com/auth/datastore"
_MASK: Final = "ttlConfig"


class TtlDeniedError(CountersinkError):
    """The account may not read the TTL policy, or not make it."""


def token_of_google() -> str:
    """An access token of the default credentials. It blocks."""
    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
        credentials.refresh(google.auth.transport.requests.Request())
    except google.auth.exceptions.GoogleAuthError as error:
        raise TransientError(f"no valid credentials: {error}") from error
    return str(credentials.token)


class Ttl:
    """The TTL policy of a kind in one database. It holds for all namespaces."""

    def __init__(
        self, place: DatastorePlace, kind: str, base: str = GOOGLE, token: Callable[[], str] = token_of_google
    ) -> None:
        self.kind = kind
        database, quoted = place.database or "(default)", quote(kind, safe="")
        field = f"projects/{place.project}/databases/{database}/collectionGroups/{quoted}/fields/{EXPIRES}"
        self._url = f"{base}/v1/{field}"
        self._token = token

    async def state(self) -> str:
        """ACTIVE, CREATING or NEEDS_REPAIR; nothing where there is no policy."""
        said = await self._ask("GET")
        return str(said.get(_MASK, {}).get("state") or "ACTIVE") if _MASK in said else ""

    async def make(self) -> None:
        """Make the policy. Google Cloud takes a few minutes to activate it."""
        await self._ask("PATCH", params={"updateMask": _MASK}, json={_MASK: {}})

    async def _ask(self, method: str, **more: Any) -> dict[str, Any]:
        token = await asyncio.to_thread(self._token)
        headers = {"Authorization": f"Bearer {token}"}
        try:
            async with (
                aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(LONGEST)) as session,
                session.request(method, self._url, **more) as response,
            ):
                if response.status == HTTPStatus.OK:
                    answer: dict[str, Any] = await response.json()
                    return answer
                said = f"the Firestore Admin API answered {response.status}: {await _reason(response)}"
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise TransientError(f"the Firestore Admin API can't be reached: {error or 'no answer in time'}") from error
        if response.status in {HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED}:
            raise TtlDeniedError(f"{said}; give this account the role Cloud Datastore Index Admin")
        raise TransientError(said)


async def _reason(response: aiohttp.ClientResponse) -> str:
    text = await response.text(errors="replace")
    try:
        return str((await response.json(content_type=None))["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200]


REACH: Final = 10.0
"""Seconds for the first answer."""
_HOME: Final = "store"


async def obstacles(store: DatastoreStore) -> Sequence[str]:
    """Reasons not to start, each with what to do. `TransientError` if the server cannot be reached in time."""
    try:
        async with asyncio.timeout(REACH):
            await store.check()
    except SettingsError as error:
        return [str(error)]
    except TimeoutError as error:
        raise TransientError(f"Datastore gave no answer within {REACH:g} seconds") from error
    return []


class DatastoreSetup:
    """Provisions and checks the store in Datastore."""

    def __init__(self, client: DatastoreClient, ttls: Sequence[Ttl], *, emulator: str) -> None:
        """`ttls`: the policies that should be there. `emulator` as in DATASTORE_EMULATOR_HOST."""
        self._client = client
        self._ttls = ttls
        self._emulator = emulator
        self._name = f"Datastore {client.place.project}/{client.place.database or '(default)'}"

    async def provision(self) -> AsyncIterator[Finding]:
        if self._emulator:
            said = "an emulator has no TTL policies: flushers delete expired receipts, and so does countersink sweep"
            yield Finding(OK, _HOME, f"{self._name}: {said}")
            return
        for ttl in self._ttls:
            said = f"{self._name}: the TTL policy of {ttl.kind}"
            if await ttl.state():
                yield Finding(OK, _HOME, f"{said} exists")
            else:
                await ttl.make()
                yield Finding(OK, _HOME, f"{said} is being created, which takes a few minutes")

    async def findings(self) -> AsyncIterator[Finding]:
        try:
            clock = await self._look()
            await probe(self._client)
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
        before = self._client.clock.now()
        async with asyncio.timeout(REACH):
            time = await self._client.look_now()
        after = self._client.clock.now()
        server = time / 1_000_000
        return of_clock("clock", before - server if server < before else min(0.0, after - server))


async def deletion(ttl: Ttl) -> Finding:
    """What deletes expired entities of the policy's kind."""
    kind = ttl.kind
    try:
        state = await ttl.state()
    except CountersinkError as error:
        return Finding(WARN, "receipts", f"can't find out whether {kind} has a TTL policy: {error}")
    if state == "ACTIVE":
        return Finding(OK, "receipts", f"a TTL policy deletes {kind} entities that have expired")
    if state:
        return Finding(WARN, "receipts", f"the TTL policy of {kind} is {state}: look again later")
    said = f"{kind} has no TTL policy, so only flushers delete what has expired: run countersink provision"
    return Finding(WARN, "receipts", said)

"""Reads and makes TTL policies, by which Google Cloud deletes what has expired: the Firestore Admin API, over REST."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import google.auth
import google.auth.exceptions
import google.auth.transport.requests

from shared.google.datastore.keys import EXPIRES, DatastorePlace
from shared.model.errors import CountersinkError, TransientError

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
        """Make the policy. Google Cloud takes some minutes to activate it."""
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

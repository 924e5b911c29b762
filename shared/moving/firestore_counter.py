"""Reads the counters of Firebase's extension `firestore-counter` from Firestore in native mode, all at one instant.

A client adds to a document of its own in the subcollection `_counter_shards_` of the counter's document. Functions of
the extension move what they find there to the field of the document, or first to documents that hold several such
updates. What is moved stands in one of these places at each instant. So a total is exact if all of them are read at the
same time, and never falls because something is moved meanwhile.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from shared.config.urls import Firestore
from shared.model.errors import CountersinkError, SettingsError, TransientError
from shared.model.moving import Foreign
from shared.runtime.retry import Backoff, insist, tries

SHARDS: Final = "_counter_shards_"
PAGE: Final = 1_000
TRIES: Final = 8
TIMEOUT: Final = 60.0
GOOGLE: Final = "https://firestore.googleapis.com"
SCOPE: Final = "https://www.googleapis.com/auth/datastore"
_UPDATES: Final = "_updates_"
_DATA: Final = "_data_"
_TRY_AGAIN: Final = {408, 429, 500, 502, 503, 504}
Document = Mapping[str, Any]
"""As REST tells it: its name, and fields as `{"integerValue": "5"}` and the like."""


class FirestoreCounters:
    """The field `visits` of the document `pages/home` is the counter `pages:home:visits`."""

    def __init__(self, place: Firestore, fields: Sequence[str], emulator: str = "") -> None:
        """`fields`: those that count. The extension does not say which. `emulator`: its host; empty for Google."""
        self.name = f"firestore-counter firestore://{place.project}/{place.database}/{place.collection}"
        self._fields = {field: tuple(field.split(".")) for field in fields}
        self._root = f"projects/{place.project}/databases/{place.database}/documents"
        self._parent, _, self._collection = f"{self._root}/{place.collection}".rpartition("/")
        self._begin = place.collection.replace("/", ":")
        self._host = f"http://{emulator}" if emulator else GOOGLE
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT))
        self._token = _Token(emulated=bool(emulator))

    async def close(self) -> None:
        await self._session.close()

    async def counter(self, name: str) -> Foreign | None:
        for field, path in self._fields.items():
            if name.endswith(f":{field}"):
                document = name.removeprefix(f"{self._begin}:").removesuffix(f":{field}")
                whole = f"{self._parent}/{self._collection}/{document}"
                time = await self._now()
                alone, shards = await self._one(whole, time), await self._all(whole, time)
                return _foreign(name, path, [*alone, *shards]) if alone or shards else None
        return None

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        time = await self._now()
        shards = await self._all(self._root, time, descendants=True)
        of: dict[str, list[Document]] = {}
        ours = f"{self._parent}/{self._collection}/"
        for shard in shards:
            document = shard["name"].rpartition("/")[0].rpartition("/")[0]
            if document.startswith(ours) and "/" not in document.removeprefix(ours):
                of.setdefault(document, []).append(shard)
        async for page in self._pages(self._parent, self._collection, time, fields=self._fields.values()):
            for one in page:
                for each in self._counters(one["name"], [one, *of.pop(one["name"], ())], prefix):
                    yield each
        for document, alone in of.items():  # which do not exist yet: nothing has been moved to them
            for each in self._counters(document, alone, prefix):
                yield each

    def _counters(self, document: str, parts: Sequence[Document], prefix: str) -> Iterable[Foreign]:
        """The counters of a document, of the fields that it or its shards have."""
        for field, path in self._fields.items():
            name = f"{self._begin}:{document.rpartition('/')[2]}:{field}"
            if name.startswith(prefix) and any(True for part in parts for _ in _values(part, path)):
                yield _foreign(name, path, parts)

    async def _now(self) -> str:
        """An instant of Firestore that is past, so that all reads at it see the same."""
        nothing = {"from": [{"collectionId": SHARDS}], "limit": 1}
        answers = await self._ask(f"{self._root}:runQuery", {"structuredQuery": nothing})
        return str(answers[0]["readTime"])

    async def _all(self, parent: str, time: str, *, descendants: bool = False) -> list[Document]:
        """All shards below the parent at that time."""
        pages = self._pages(parent, SHARDS, time, descendants=descendants)
        return [one async for page in pages for one in page]

    async def _pages(
        self,
        parent: str,
        collection: str,
        time: str,
        *,
        descendants: bool = False,
        fields: Iterable[Sequence[str]] = (),
    ) -> AsyncIterator[Sequence[Document]]:
        """Pages of documents, in the order of their names, at that time."""
        query: dict[str, Any] = {
            "from": [{"collectionId": collection, "allDescendants": descendants}],
            "orderBy": [{"field": {"fieldPath": "__name__"}}],
            "limit": PAGE,
        }
        if fields:
            query["select"] = {"fields": [{"fieldPath": ".".join(map(_quoted, path))} for path in fields]}
        while True:
            answers = await self._ask(f"{parent}:runQuery", {"structuredQuery": query, "readTime": time})
            page = [answer["document"] for answer in answers if "document" in answer]
            yield page
            if len(page) < PAGE:
                return
            query["startAt"] = {"values": [{"referenceValue": page[-1]["name"]}], "before": False}

    async def _one(self, document: str, time: str) -> Sequence[Document]:
        """The document at this time, if it exists."""
        answers = await self._ask(f"{self._root}:batchGet", {"documents": [document], "readTime": time})
        return [answer["found"] for answer in answers if "found" in answer]

    async def _ask(self, path: str, body: Mapping[str, Any]) -> Any:
        async def once() -> Any:
            headers = {"Authorization": f"Bearer {await self._token.get()}"}
            url = f"{self._host}/v1/{quote(path, safe='/:()')}"
            try:
                async with self._session.post(url, json=body, headers=headers) as answer:
                    if answer.status == 200:  # noqa: PLR2004 (of HTTP)
                        return await answer.json()
                    said = f"Firestore answers {answer.status}: {_reason(await answer.text())}"
            except (aiohttp.ClientError, TimeoutError) as error:
                raise TransientError(f"Firestore does not answer: {error!r}") from error
            raise TransientError(said) if answer.status in _TRY_AGAIN else CountersinkError(said)

        return await insist(once, TransientError, tries(TRIES), Backoff(0.1, 5.0))


class _Token:
    """The credentials of this machine, as Google's libraries find them."""

    def __init__(self, *, emulated: bool) -> None:
        self._emulated = emulated
        self._credentials: Any = None

    async def get(self) -> str:
        return "owner" if self._emulated else await asyncio.to_thread(self._get)

    def _get(self) -> str:
        import google.auth  # noqa: PLC0415 (an emulator needs none)
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415
        from google.auth.transport.requests import Request  # noqa: PLC0415

        try:
            if self._credentials is None:
                self._credentials, _ = google.auth.default(scopes=[SCOPE])
            if not self._credentials.valid:
                self._credentials.refresh(Request())
        except GoogleAuthError as error:
            raise SettingsError(f"no credentials for Firestore: {error}") from error
        return str(self._credentials.token)


def _foreign(name: str, path: Sequence[str], parts: Iterable[Document]) -> Foreign:
    total = 0
    for part in parts:
        for value in _values(part, path):
            number = _whole(value)
            if number is None:
                return Foreign(name, flaw=f"a value of it is no whole number, but {value}")
            total += number
    return Foreign(name, total)


def _values(document: Document, path: Sequence[str]) -> Iterable[Mapping[str, Any]]:
    """What the document adds to the field: its own value, or those of the updates that it holds."""
    fields = document.get("fields", {})
    updates = fields.get(_UPDATES, {}).get("arrayValue", {}).get("values", [])
    held = [update["mapValue"]["fields"].get(_DATA, {}).get("mapValue", {}).get("fields", {}) for update in updates]
    for one in (fields, *held):
        value = _at(one, path)
        if value is not None:
            yield value


def _at(fields: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any] | None:
    value: Any = {"mapValue": {"fields": fields}}
    for name in path:
        value = value.get("mapValue", {}).get("fields", {}).get(name)
        if value is None:
            return None
    found: Mapping[str, Any] = value
    return found


def _whole(value: Mapping[str, Any]) -> int | None:
    """The whole number in a value; None if it holds none. JavaScript may store it as a double."""
    if "integerValue" in value:
        return int(value["integerValue"])
    double = value.get("doubleValue")
    return int(double) if isinstance(double, (int, float)) and float(double).is_integer() else None


def _quoted(name: str) -> str:
    """A part of a field's path as Firestore reads it."""
    return (
        name if name.isidentifier() and name.isascii() else "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
    )


def _reason(text: str) -> str:
    return " ".join(text.split())[:500]

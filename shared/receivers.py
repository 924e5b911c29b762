"""The receivers of the feed outside of Pub/Sub: a file, and a web hook."""

import asyncio
import hmac
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from errno import EINVAL
from pathlib import Path
from typing import Final
from urllib.parse import quote

import aiohttp

from shared.model.feed import Event
from shared.runtime.clock import Clock

_BEGIN: Final = b'{"specversion":"1.0","id":'
"""How each event begins."""


class EventFile:
    """What it said it took is on the disk. If somebody moves the file away, as logrotate does, a new one is made."""

    def __init__(self, path: Path, source: str) -> None:
        self._path = path
        self._source = source
        self._file: int | None = None

    async def tell(self, events: Sequence[Event]) -> Sequence[str]:
        lines = b"".join([event.structured(self._source) + b"\n" for event in events])
        try:
            await asyncio.to_thread(self._append, lines)
        except OSError as error:
            return [error.strerror or str(error)] * len(events)
        return [""] * len(events)

    def _append(self, lines: bytes) -> None:
        file = self._opened()
        end = os.fstat(file).st_size
        try:
            view = memoryview(lines)
            while view:
                view = view[os.write(file, view) :]
            os.fdatasync(file)
        except OSError:
            os.ftruncate(file, end)  # no part of a line stays
            raise

    def _opened(self) -> int:
        if self._file is not None:
            try:
                if os.path.samestat(os.fstat(self._file), self._path.stat()):
                    return self._file
            except FileNotFoundError:
                pass
            os.close(self._file)
            self._file = None
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _end_of_lines(file)
        except OSError:
            os.close(file)
            raise
        self._file = file
        return file

    async def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _end_of_lines(file: int) -> None:
    """Cut off an event that was begun when the machine stopped. It was not taken, so it comes again. Raises an
    `OSError` if the file ends with something else, which somebody may need.
    """
    end = os.fstat(file).st_size
    block = 65_536
    while end > 0:
        begin = max(end - block, 0)
        tail = os.pread(file, end - begin, begin)
        if (found := tail.rfind(b"\n")) >= 0:
            end = begin + found + 1
            break
        end = begin
    begun = os.pread(file, len(_BEGIN), end)
    if not _BEGIN.startswith(begun):
        raise OSError(EINVAL, "it ends with half a line that is no event: name another file, or end the line")
    if begun:
        os.ftruncate(file, end)


# Sends events to a web hook, as Standard Webhooks says (https://www.standardwebhooks.com).


AT_ONCE: Final = 16
"""Requests at the same time."""
PATIENCE: Final = 10.0
"""Seconds for one request."""
_KEY: Final = "whsec_"
_SIZES: Final = range(24, 65)
"""Bytes of a key, as Standard Webhooks has them."""


def keys_of(text: str) -> Sequence[bytes]:
    """The keys in a setting: none, or several with spaces between, while one replaces another. Raises `ValueError`."""
    words = text.split()
    try:
        keys = [b64decode(word.removeprefix(_KEY), validate=True) for word in words if word.startswith(_KEY)]
    except ValueError:
        keys = []
    if len(keys) != len(words) or any(len(key) not in _SIZES for key in keys):
        raise ValueError("must be whsec_ and 24 to 64 random bytes as base64")
    return keys


def signatures(keys: Sequence[bytes], id_: str, seconds: int, body: bytes) -> str:
    """The value of the header `webhook-signature`."""
    signed = f"{id_}.{seconds}.".encode() + body
    return " ".join(["v1," + b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys])


class WebHook:
    """It took an event if it answered 2xx."""

    def __init__(self, url: str, keys: Sequence[bytes], source: str, clock: Clock) -> None:
        self._url = url
        self._keys = keys
        self._source = source
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def tell(self, events: Sequence[Event]) -> Sequence[str]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=AT_ONCE),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=PATIENCE),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        turns = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*[self._send(self._session, turns, event) for event in events])

    async def _send(self, session: aiohttp.ClientSession, turns: asyncio.Semaphore, event: Event) -> str:
        async with turns:
            body, id_, seconds = event.structured(self._source), quote(event.id, safe="/:"), int(self._clock.now())
            headers = {
                "content-type": "application/cloudevents+json; charset=utf-8",
                "webhook-id": id_,
                "webhook-timestamp": str(seconds),
            }
            if self._keys:
                headers["webhook-signature"] = signatures(self._keys, id_, seconds, body)
            try:
                async with asyncio.timeout(PATIENCE):
                    async with session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
                        return "" if 200 <= answer.status < 300 else self._refused(answer.status)  # noqa: PLR2004
            except (aiohttp.ClientError, OSError) as error:  # a time-out is one
                return f"no answer: {str(error) or type(error).__name__}"

    def _refused(self, status: int) -> str:
        hint = ""
        if status in {401, 403}:
            hint = (
                " (does it have the secret?)" if self._keys else " (without COUNTERSINK_FEED_SECRET, nothing is signed)"
            )
        return f"it answered {status}{hint}"

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

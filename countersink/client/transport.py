"""Owns the connections of a client, and repeats a request until it is answered or the time is over."""

import asyncio
import json
import os
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from countersink.client.answers import RejectedError, RequestError, UnavailableError
from shared.model.errors import SettingsError

AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
"""Statuses after which the same request may succeed."""
ONE_TRY: Final = 10.0
"""Seconds after which an attempt is given up and repeated."""
SHORTEST_TRY: Final = 1.0
"""Seconds of one attempt at least, however short the caller's patience."""
LONGEST_CONNECT: Final = 5.0
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0


T = TypeVar("T")


class Transport:
    """Sends requests. It may repeat any of them: the caller gives an id to each request that counts."""

    def __init__(self, url: str, patience: float, headers: Mapping[str, str]) -> None:
        self._base = _checked(url)
        self._shown = str(URL(self._base).with_user(None))
        self._patience = patience
        self._headers = headers
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, wait: float = 0.0
    ) -> dict[str, Any]:
        """The JSON object of a 2xx answer. `wait`: seconds that the service may take in addition."""
        data = None if body is None else json.dumps(body).encode()
        return (await self._insist(method, path, data, _object, headers=headers, wait=wait))[0]

    async def fetch(self, path: str) -> tuple[bytes, Mapping[str, str]]:
        """The unparsed body of a 2xx answer, and its headers."""
        return await self._insist("GET", path, None, bytes)

    async def _insist(
        self,
        method: str,
        path: str,
        data: bytes | None,
        read: Callable[[bytes], T | None],
        *,
        headers: Mapping[str, str] | None = None,
        wait: float = 0.0,
    ) -> tuple[T, Mapping[str, str]]:
        """Repeat the request until there is a readable answer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience + wait
        pause = FIRST_PAUSE
        while True:
            one_try = wait + min(ONE_TRY, max(until - wait - loop.time(), SHORTEST_TRY))
            failure: RequestError
            retry_after = 0.0
            try:
                async with self._request(method, path, one_try, data=data, headers=headers) as response:
                    said = await response.read()
                    good = 200 <= response.status < 300  # noqa: PLR2004 (success)
                    if good and (answer := read(said)) is not None:
                        return answer, response.headers
                    failure = self._failure(response, _object(said))
                    retry_after = _seconds(response.headers.get("Retry-After"))
            except (aiohttp.ClientError, OSError) as error:
                failure = UnavailableError(f"no answer from {self._shown}: {_why(error, one_try)}")
                failure.__cause__ = error
            delay = retry_after + pause * random.uniform(0.5, 1.0)  # noqa: S311 (jitter)
            pause = min(pause * 2, LONGEST_PAUSE)
            if isinstance(failure, RejectedError) or loop.time() + delay > until:
                raise failure
            await asyncio.sleep(delay)

    def _request(
        self, method: str, path: str, one_try: float, **options: Any
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("a Client is used within 'async with'")
        timeout = aiohttp.ClientTimeout(total=one_try, sock_connect=min(one_try, LONGEST_CONNECT))
        url = URL(self._base + path, encoded=True)
        # Redirects are not followed: they would turn a POST into a GET.
        return self._session.request(method, url, timeout=timeout, allow_redirects=False, **options)

    def _failure(self, response: aiohttp.ClientResponse, answer: Mapping[str, Any] | None) -> RequestError:
        status = response.status
        if answer is not None and "detail" in answer:
            detail = str(answer["detail"])
        else:
            detail = f"{self._shown} answered {status} {response.reason}, not as Countersink does: is the URL right?"
        kind = UnavailableError if status in AGAIN else RejectedError
        return kind(detail, status=status, field=(answer or {}).get("field"))


def _checked(url: str) -> str:
    """The base URL without a final slash, in the characters that HTTP allows."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and not parts.query and not parts.fragment
        if good and parts.port != 0:
            return str(URL(url)).rstrip("/")
    except ValueError:
        pass
    raise SettingsError(f"{url!r} is no URL of a service: write it as http://HOST:PORT")


def _why(error: Exception, one_try: float) -> str:
    """The error in a few words: the libraries' own text of a refused connection is very long."""
    if isinstance(error, TimeoutError):
        return f"it took longer than {one_try:g} seconds"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        said = os.strerror(error.errno)
    else:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"{said}. Is it running, and is the URL right?"


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _seconds(text: str | None) -> float:
    """The seconds that Retry-After asks for. A date counts as 0: clocks differ."""
    return min(float(text), 3600.0) if text and text.isascii() and text.isdigit() else 0.0

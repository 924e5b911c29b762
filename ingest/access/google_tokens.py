"""ID tokens of Google: which account sent a request, once the token's signature is verified, and the certificates."""

import asyncio
import logging
import math
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn, TypeGuard

import aiohttp

from ingest.http.problems import Problem
from shared.model.errors import OverloadedError, SettingsError
from shared.model.words import Lately
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

ISSUERS: Final = ("https://accounts.google.com", "accounts.google.com")
SKEW: Final = 60.0
"""Seconds by which our clock may differ from Google's."""
MOST_TOKENS: Final = 4_096
"""Verified tokens that are remembered."""
PAUSE: Final = 10.0
"""Seconds between two fetches of the certificates, at least, whatever tokens strangers invent."""
LONGEST_FETCH: Final = 5.0
KEPT: Final = 86_400.0
"""Seconds for which certificates are fresh, at most; and for which they are still used while no others can be had."""
_FRESH: Final = 3_600.0
"""Seconds for which they are fresh if Google does not say for how long."""
_MAX_AGE: Final = re.compile(r"max-age=([0-9]{1,9})")
_REMOVED: Final = ".SIGNATURE_REMOVED_BY_GOOGLE"
_LONGEST_TOLD: Final = 200
_LATEST: Final = 1e11
"""Seconds since 1970, in the year 5138."""


def is_token(text: str) -> bool:
    """Whether it looks like an ID token. No key does."""
    return text.startswith("eyJ") and text.count(".") == 2  # noqa: PLR2004 (it has three parts)


def refuse(detail: str) -> NoReturn:
    raise Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})


class UnverifiedError(Problem):
    def __init__(self, token: str) -> None:
        super().__init__(401, "an ID token can't be used here: use a key", headers={"WWW-Authenticate": "Bearer"})
        self.token = token


class GoogleTokens:
    """The tokens that were verified, until they expire. To find one again costs one look-up."""

    def __init__(self, audiences: Collection[str], certificates: str, clock: Clock) -> None:
        """`certificates`: their URL. Raises `SettingsError` if the extra is missing."""
        try:
            from google.auth import jwt  # noqa: PLC0415 (the extra may be missing)
        except ImportError:
            raise SettingsError(
                "COUNTERSINK_AUDIENCE: install Countersink with its extra 'google' (in a checkout: make install"
                " EXTRAS=google), which verifies tokens"
            ) from None
        self._jwt = jwt
        self._audiences = audiences
        self._certificates = Certificates(certificates, clock)
        self._clock = clock
        self._known: Lately[str, tuple[str, float]] = Lately(MOST_TOKENS)

    def find(self, token: str) -> tuple[str, float]:
        """Whose token it is, and when it expires, in seconds since 1970. Raises `UnverifiedError` if it was not
        verified, or has expired since.
        """
        account, ends = self._known.get(token, ("", 0.0))
        if ends <= self._clock.now():
            raise UnverifiedError(token)
        return account, ends

    async def verify(self, token: str, accounts: Collection[str]) -> None:
        """Verify a token, and remember whose it is if it is one of these accounts'. Raises the `Problem` or
        `OverloadedError` that the request is answered with. It takes a tenth of a millisecond, if the
        certificate is known. Until the signature is verified, it says nothing about accounts.
        """
        self._known.pop(token, None)
        if token.endswith(_REMOVED):
            refuse(
                "Cloud Run has removed this token's signature, because it checks callers itself: turn its check off"
                " (gcloud run services update SERVICE --no-invoker-iam-check), as Countersink has to see the signature"
            )
        key_id, ends = self._checked(token)
        certificates = await self._certificates.with_id(key_id)
        if key_id not in certificates:
            refuse(f"Google has no certificate {key_id[:_LONGEST_TOLD]!r}, with which this token claims to be signed")
        try:
            claims = self._jwt.decode(token, certificates, audience=[*self._audiences], clock_skew_in_seconds=SKEW)
        except (ValueError, TypeError) as error:
            refuse(f"this token is not valid: {str(error)[:_LONGEST_TOLD]}")
        account = claims.get("email")
        if type(account) is not str:
            refuse(
                "this token does not name its account: ask for one with the e-mail address (gcloud: --include-email)"
            )
        if claims.get("email_verified") is not True:
            refuse(f"Google has not verified that {account[:_LONGEST_TOLD]} is the account of this token")
        if account not in accounts:
            refuse_account(account)
        self._known[token] = account, ends

    def _checked(self, token: str) -> tuple[str, float]:
        """The id of the certificate that it needs, and when it expires. Raises a `Problem` if it can't be a good one:
        nothing is fetched for its sake.
        """
        try:
            header, claims = self._jwt.decode_header(token), self._jwt.decode(token, verify=False)
        except (ValueError, RecursionError):
            refuse("this token can't be read: send the ID token as Google made it")
        issuer, audience, ends, key_id = claims.get("iss"), claims.get("aud"), claims.get("exp"), header.get("kid")
        if issuer not in ISSUERS:
            refuse(f"this token is issued by {_told(issuer)}: send an ID token that {ISSUERS[0]} issues")
        if audience not in self._audiences:
            refuse(
                f"this token is for the audience {_told(audience)}: set COUNTERSINK_AUDIENCE to it, or ask for one with"
                f" the audience {' or '.join(self._audiences)}"
            )
        if header.get("alg") != "RS256" or type(key_id) is not str or not _is_time(ends):
            refuse("this token is not signed as Google signs its ID tokens")
        if ends + SKEW <= self._clock.now():
            refuse("this token has expired: ask Google for a new one")
        return key_id, ends + SKEW


def refuse_account(account: str) -> NoReturn:
    refuse(
        f"no key is for the account {account[:_LONGEST_TOLD]}: make one with"
        f" countersink keys new ID --google {account[:_LONGEST_TOLD]} --scope write"
    )


def _is_time(value: Any) -> TypeGuard[float]:
    return type(value) in {int, float} and 0 < value < _LATEST  # a NaN is not


def _told(value: Any) -> str:
    return f"{value!r:.{_LONGEST_TOLD}}"


class Certificates:
    """Google's certificates, by their ids. They are fetched when a token needs one, and again when they are not fresh
    any more, which happens long before Google uses a new one.
    """

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._held: Mapping[str, str] = {}
        self._stale = self._next = -math.inf
        """When they are too old, and when they may be fetched again at the earliest."""
        self._failure = ""
        self._turn = asyncio.Lock()

    async def with_id(self, key_id: str) -> Mapping[str, str]:
        """All of them, with this one if Google has it. Raises `OverloadedError` if nobody knows whether it has."""
        if self._lacks(key_id):
            async with self._turn:  # those who come while they are fetched wait for them
                if self._lacks(key_id) and (now := self._clock.monotonic()) >= self._next:
                    self._next = now + PAUSE
                    await self._fetch()
        if self._failure and key_id not in self._held:
            raise OverloadedError(self._failure, PAUSE)
        return self._held

    def _lacks(self, key_id: str) -> bool:
        return key_id not in self._held or self._clock.monotonic() >= self._stale

    async def _fetch(self) -> None:
        timeout = aiohttp.ClientTimeout(total=LONGEST_FETCH)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
                session.get(self._url) as said,
            ):
                said.raise_for_status()
                found = await said.json(content_type=None)
                if type(found) is not dict or not all(type(one) is str for one in found.values()):
                    raise ValueError("they are not an object of certificates")
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            self._failure = f"Google's certificates can't be fetched ({error or 'no answer'}): try again later"
            _log.warning("%s", self._failure)
            if self._clock.monotonic() >= self._stale + KEPT:
                self._held = {}
            return
        self._held, self._failure = found, ""
        age = _MAX_AGE.search(said.headers.get("Cache-Control", ""))
        self._stale = self._clock.monotonic() + min(_FRESH if age is None else float(age[1]), KEPT)

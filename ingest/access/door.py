"""The step that every request passes first: who sends it, and whether they may. Each socket has a door of its own."""

import logging
import math
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from ingest.access.callers import (
    Caller,
    Credentials,
    address_of,
    check_name,
    client_of,
    credentials_in,
    is_loopback,
    trusts,
)
from ingest.access.google_tokens import GoogleTokens, UnverifiedError, is_token, refuse, refuse_account
from ingest.access.keys import PUBLISHABLE_KEY, SCOPES, Key, KeyRing, Need
from ingest.access.rates import Public
from ingest.api.counters import DEFAULT_LISTED, MOST_LISTED
from ingest.api.pictures import Pictures
from ingest.api.routes import SCRIPT, WITHOUT_KEY, Target, find
from ingest.http.problems import Problem, problem_of
from ingest.http.requests import COUNTERS, target_of
from shared.config.settings import Settings
from shared.http.shares import peer_of, tenant_of
from shared.model.errors import amount
from shared.model.words import Lately
from shared.runtime.clock import Clock
from shared.runtime.retry import forever

_log = logging.getLogger(__name__)

MOST_CALLERS: Final = 4_096
"""Callers that are remembered."""
MOST_SAID: Final = 1_024
"""Characters: a caller is not remembered if the headers that identify it are longer."""
TELL: Final = 60.0
"""Seconds between two lines of the log that say why a token was refused."""
PREFLIGHT: Final = "OPTIONS"
ASKED: Final = frozenset({"GET", "POST"})
"""The methods that pages of other sites may use."""
UNKNOWN: Final = "UNKNOWN"
"""The method of what is not HTTP."""
NOT_HTTP: Final = find(UNKNOWN, "/")
_WITHOUT_KEY: Final = frozenset({UNKNOWN, PREFLIGHT, "GET", "HEAD"})
"""Methods of requests that may need no key."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_BEARER: Final = re.compile(r"bearer +([!-~]+)", re.IGNORECASE)
LARGEST_COST: Final = 100
"""A list of the largest counts as at least this many counters: it looks at all counters under the prefix."""
_READS: Final = frozenset({"GET", "HEAD"})


class Door:
    """The one place for access control. Without keys, everybody is let in, except pages of other sites."""

    def __init__(
        self, settings: Settings, clock: Clock, ring: KeyRing | None = None, google: GoogleTokens | None = None
    ) -> None:
        self._ring = ring
        self._google = google
        self._trusted = settings.trusted_proxies
        self._origins = frozenset(settings.origins)
        self._hosts = frozenset(settings.hosts)
        self._pictures = Pictures(settings.pixels, settings.badges)
        self._clock = clock
        self._callers: Lately[tuple[str, Credentials], Caller] = Lately(MOST_CALLERS)
        self._warned = False
        self._tells_again = -math.inf
        self.is_local = True
        """Whether clients find this service only under the names and addresses of loopback. Otherwise, any address in
        Host is good, since no site can point an address to this machine.
        """

    def enter(self, target: Target, said: Credentials, peer: str) -> Caller:
        """Return who the caller is, or raise the `Problem` or `CountersinkError` that the request is answered with.

        It is called once for each request, before the query is parsed or the body is read. After an error nothing else
        is done with the request, but for `UnverifiedError`: `admit` may still let it in. `peer` is the address of the
        other end of the connection, or empty. What is not HTTP is shown as `NOT_HTTP` without headers.

        It must not block: each request of the fast path pays for it.
        """
        if self._ring is None:
            caller = self._callers.get((peer, said)) or self._remember(peer, said)
            if said.is_foreign:
                self._check_page(target, said)
            return caller
        method, path, query = target[:3]
        if path in WITHOUT_KEY or (method in _WITHOUT_KEY and self._needs_no_key(target, said)):
            return self._nobody(peer, said)
        if query and "key=" in query and (text := _key_in(query)) is not None:
            caller = self._of_query(text, said, peer)
        else:
            caller = self._callers.get((peer, said)) or self._remember(peer, said)
        key = caller.key
        if key is None:
            or_in_url = ", or ?key=cpk_… in the URL" if target.is_for_pages else ""
            refuse(f"send a key: Authorization: Bearer csk_…{or_in_url}")
        if caller.ends < math.inf and caller.ends <= self._clock.now():
            if key.ends <= caller.ends:
                refuse(f"the key {key.id} has expired: make another one with countersink keys new")
            refuse(f"the token for the key {key.id} has expired: ask Google for a new one")
        need = target.need
        _check_key(key, target, said)
        if need.counts and (caller.bucket is not None or caller.public is not None):
            caller.check_rate()
        elif need.reads and caller.public is not None:
            _read(caller.public, target)
        return caller

    async def admit(self, target: Target, said: Credentials, peer: str) -> Caller:
        """As `enter`, but for requests that can wait: it verifies a token of Google's that is seen for the first
        time.
        """
        try:
            return self.enter(target, said, peer)
        except UnverifiedError as error:
            assert self._google is not None  # noqa: S101 (it has raised this)
            assert self._ring is not None  # noqa: S101
            try:
                await self._google.verify(error.token, self._ring.accounts)
            except Problem as problem:
                self._tell_refused(problem)
                raise
        return self.enter(target, said, peer)

    def _tell_refused(self, problem: Problem) -> None:
        """Log why a token was refused, as nobody sees what a push subscription is answered; but not each time."""
        now = self._clock.monotonic()
        if now >= self._tells_again:
            self._tells_again = now + TELL
            _log.warning("a request with a Google ID token was refused: %s", problem.detail)

    def shares_with(self, target: Target, said: Credentials) -> str:
        """The origin of the page that may see the answer to this request, or empty."""
        if not said.origin:
            return ""
        if target.method == PREFLIGHT:
            target = find(said.asks_for, target.path)
        return said.origin if target.is_for_pages and said.origin in self._pages(target.need) else ""

    def forget(self) -> None:
        self._callers.clear()

    def _pages(self, need: Need) -> frozenset[str]:
        """The origins of pages that may send requests that need this."""
        keyed = [] if self._ring is None else [self._ring.origins[scope] for scope in need]
        return frozenset().union(self._origins if need.counts else (), *keyed)

    def _needs_no_key(self, target: Target, said: Credentials) -> bool:
        """Whether a request whose method is in `_WITHOUT_KEY` needs no key."""
        method, path = target[:2]
        if method in _READS:
            return self._pictures.has_badge(path)
        return (method == UNKNOWN and path == "/") or self._is_preflight(target, said)

    def _is_preflight(self, target: Target, said: Credentials) -> bool:
        """Whether a browser asks if a page may send a request. It sends no key with that."""
        return target.method == PREFLIGHT and said.asks_for in ASKED and bool(self.shares_with(target, said))

    def _check_page(self, target: Target, said: Credentials) -> None:
        """Raise a 403 if there are no keys and a page of another site caused this request."""
        method, path = target[:2]
        if method in _READS and (
            (path == SCRIPT and self._origins)  # a browser does not say which page loads the script
            or self._pictures.show(path)
            or (said.navigates and not target.need.counts)
        ):
            return
        if self.shares_with(target, said) and (method == "POST" or self._is_preflight(target, said)):
            return
        raise Problem(
            403,
            f"a web page of {said.origin[:200] or 'another site'} may not do this: COUNTERSINK_ORIGINS lists the"
            " origins of pages that may count",
            field="Origin" if said.origin else None,
        )

    def _remember(self, peer: str, said: Credentials) -> Caller:
        """The caller with these headers, who is found faster the next time."""
        if self._ring is None:
            self._check_host(said)
            caller = self._nobody(peer, said)
        elif not said.authorization:
            caller = self._nobody(peer, said)
        else:
            found = _BEARER.fullmatch(said.authorization[0]) if len(said.authorization) == 1 else None
            if found is None:
                refuse("send the header Authorization once, as Bearer csk_…")
            caller = self._of(self._ring, found[1], peer, said)
        if said.size() <= MOST_SAID:
            self._callers[peer, said] = caller
        return caller

    def _check_host(self, said: Credentials) -> None:
        """Raise a 403 if a browser may have found this machine under another site's name: a site that points its name
        here makes browsers take our answers for its own. Browsers always send Host.
        """
        host = said.host
        if host is None or is_loopback(host) or host in self._hosts or (not self.is_local and address_of(host)):
            return
        other = "localhost" if self.is_local else "its address"
        raise Problem(
            403,
            f"this service is not {host[:200] or '?'!r}: use {other}, or list the name in COUNTERSINK_HOSTS",
            field="Host",
        )

    def _of_query(self, text: str, said: Credentials, peer: str) -> Caller:
        assert self._ring is not None  # noqa: S101
        if said.authorization:
            refuse("send one key: in Authorization or in the query, not in both")
        if not text.startswith(f"{PUBLISHABLE_KEY}_"):
            refuse("the query may hold only one key, and it must be publishable")
        return self._of(self._ring, text, peer, said)._replace(in_query=True)

    def _of(self, ring: KeyRing, text: str, peer: str, said: Credentials) -> Caller:
        key, ends = ring.find(text), math.inf
        if key is None and is_token(text):
            if self._google is None:
                refuse("this service accepts no Google ID tokens: set COUNTERSINK_AUDIENCE, or send a key")
            account, ends = self._google.find(text)
            key = ring.accounts.get(account) or refuse_account(account)
        if key is None:
            refuse("this key is not valid: it may be incomplete or revoked; send another one")
        client = self._client(peer, said)
        # Many clients have the same publishable key, and none of them may use up the share of the others.
        tenant = tenant_of(client) if key.publishable else f"key {key.id}"
        return Caller(
            tenant, client, key, ring.bucket(key), ring.public(key, tenant), ring=ring, ends=min(key.ends, ends)
        )

    def _nobody(self, peer: str, said: Credentials) -> Caller:
        client = self._client(peer, said)
        return Caller(tenant_of(client), client, only_counts=said.is_foreign)

    def _client(self, peer: str, said: Credentials) -> str:
        if said.forwarded and not self._warned and not trusts(peer, self._trusted):
            self._warned = True
            _log.warning(
                "%s sends X-Forwarded-For, which is ignored: if it is your proxy, all clients behind it share the"
                " limits of one. List its network in COUNTERSINK_TRUSTED_PROXIES",
                peer or "a program on the Unix socket",
            )
        return client_of(peer, said.forwarded, self._trusted)


def _check_key(key: Key, target: Target, said: Credentials) -> None:
    method, path, need = target.method, target.path, target.need
    if key.publishable:
        # A browser does not name the page that shows a picture, or that reads from its own site.
        may_be_page = bool(said.origin) or method in _READS
        if not target.is_for_pages or not may_be_page:
            does = " and ".join(scope.allows for name, scope in SCOPES.items() if name in key.may)
            why = f"the key {key.id} may only {does}, from pages of its origins"
            if target.is_for_pages and not need.isdisjoint(key.may):
                why += f". This request names no origin: with curl, add -H 'Origin: {key.origins[0]}'"
            raise Problem(403, why)
        if said.origin and said.origin not in key.origins:
            raise _other_page(key, said.origin)
    if need.isdisjoint(key.may):
        raise Problem(403, f"the key {key.id} may not do this: it needs the scope {' or '.join(sorted(need))}")
    if path.startswith(COUNTERS):
        name = path[len(COUNTERS) :].partition("/")[0]
        check_name(key, unquote(name) if "%" in name else name)


def _other_page(key: Key, origin: str) -> Problem:
    """A 403 that this page may read, so that its author sees the reason. No data is in it, and the origins of a
    publishable key are no secret.
    """
    return Problem(
        403,
        f"pages of {origin[:200]} may not use the key {key.id}: its origins are {', '.join(key.origins)}",
        field="Origin",
        headers={"Access-Control-Allow-Origin": origin, "Vary": "Origin"} if origin.isascii() else {},
    )


def _read(public: Public, target: Target) -> None:
    """Count how many counters a read asks for, at most. Raises the `Problem` or `ShareError` if they are too many."""
    asked = 1
    if target.parameter is None:
        fields = _fields(target.query)
        limits = [
            min(int(value), MOST_LISTED) for name, value in fields if name == "limit" and _NUMBER.fullmatch(value)
        ]
        asked = max([sum(name == "name" for name, _ in fields), *limits]) or DEFAULT_LISTED
        if asked <= public.most:
            if any(name == "contains" for name, _ in fields):
                asked = public.most  # it looks at all counters, so it takes what may be read in a second
            elif ("order", "value") in fields:
                asked = min(max(asked, LARGEST_COST), public.most)
    if asked > public.most:
        raise Problem(
            422,
            f"with this publishable key, a request may read {amount(public.most, 'counter')}, and this one may read"
            f" {asked}: add limit={public.most}, or name fewer",
            field="limit",
        )
    public.read(asked)


def _key_in(query: str) -> str | None:
    """The key in the query; not a valid one if there are several."""
    found = [value for name, value in _fields(query) if name == "key"]
    return found[0] if len(found) == 1 else ("" if found else None)


def _fields(query: str) -> list[tuple[str, str]]:
    """Empty if the query can't be read: the route that reads it says why."""
    try:
        return parse_qsl(query, keep_blank_values=True, errors="strict")
    except ValueError:
        return []


# The doors of one process: one for each socket that it listens on, all with the same keys.


Refuse = Callable[[web.BaseRequest], Awaitable[web.Response | None]]
"""Returns the answer to a request that may not come in."""


class Doors:
    """Makes doors, and tells them when the keys file has changed."""

    def __init__(self, settings: Settings, clock: Clock, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called then, too: requests that continue were let in by keys that may be gone. Raises
        `SettingsError` if there is to be a keys file, and it can't be read or is wrong.
        """
        self._changed = changed
        self._settings = settings
        self._clock = clock
        self._ring = KeyRing(Path(settings.keys_file), clock) if settings.keys_file else None
        self._google: GoogleTokens | None = None
        if self._ring is not None and settings.audience:
            self._google = GoogleTokens(settings.audience, settings.google_certificates, clock)
        self._tell_unused()
        self._doors: list[Door] = []

    def add(self) -> Door:
        door = Door(self._settings, self._clock, self._ring, self._google)
        self._doors.append(door)
        return door

    def at(self, sock: socket.socket) -> Refuse:
        """A door for a server that asks it at each request."""
        door = self.add()
        door.is_local = is_local(sock)

        async def refuse(request: web.BaseRequest) -> web.Response | None:
            peer = "" if request.transport is None else peer_of(request.transport)
            try:
                await door.admit(find(request.method, *target_of(request)), credentials_in(request.headers), peer)
            except Exception as error:
                return problem_of(error).response()
            return None

        return refuse

    async def tend(self) -> None:
        await forever(self._look, self._settings.keys_interval)

    async def _look(self) -> None:
        if self._ring is not None and await self._ring.look():
            for door in self._doors:
                door.forget()
            self._changed()
            self._tell_unused()

    def _tell_unused(self) -> None:
        """Log that keys can't be used. It is no reason not to start: all others can be."""
        if self._ring is not None and self._ring.accounts and self._google is None:
            _log.error(
                "keys for service accounts (%s, …) can't be used: set COUNTERSINK_AUDIENCE to the URL for which their"
                " ID tokens are made",
                next(iter(self._ring.accounts)),
            )


def is_local(sock: socket.socket) -> bool:
    """Whether only this machine can connect, over an address that a browser can be sent to."""
    return sock.family in {socket.AF_INET, socket.AF_INET6} and is_loopback(sock.getsockname()[0])

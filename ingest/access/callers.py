"""Who sends a request, and what they may use: credentials, proxies, owners' ids, and the log of administrators."""

import logging
import math
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from hashlib import blake2b, sha256
from hmac import compare_digest
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from multidict import CIMultiDictProxy

from ingest.accept.drafts import Batch
from ingest.access.keys import TO_READ, Key, KeyRing
from ingest.access.rates import Bucket, NewQuota, Public
from ingest.http.problems import Problem
from ingest.parsing.parse import BodyError
from shared.config.lists import Network
from shared.http.shares import FairLock
from shared.model.errors import OverloadedError, amount
from shared.model.words import ALL_DELTAS, Deltas, Increment
from shared.runtime.ids import of_key

OWNED: Final = "\x1eowned:"
"""How an id begins that stands for one of an owner. An id that a client begins like this is treated as an owned one."""


OWNED_RECEIPT: Final = "own-"
"""How the receipts of owners begin, and the ids of batches with an owner's Idempotency-Key."""


def owned(owner: str, id_: str) -> str:
    """The id that is stored for a client's id. Without an owner it is the client's own."""
    if not owner and not id_.startswith(OWNED):
        return id_
    return OWNED + sha256(f"{len(owner)}:{owner}{id_}".encode()).hexdigest()


def batch_id(owner: str, idempotency_key: str) -> str:
    """The id of a batch with this Idempotency-Key. An id of an owner begins differently."""
    if not owner:
        return of_key(owned(owner, idempotency_key))
    return f"{OWNED_RECEIPT}key-" + sha256(owned(owner, idempotency_key).encode()).hexdigest()


def event_id(owner: str, source: str, id_: str) -> str:
    """The id of the envelope of a CloudEvent: 128 bits of a hash, as a receipt names many of them."""
    text = f"{len(owner)}:{owner}{len(source)}:{source}{id_}"
    return f"{OWNED_RECEIPT if owner else ''}ce-" + sha256(text.encode()).hexdigest()[:32]


def signed(secret: str, owner: str, ids: str) -> str:
    """The receipt that an owner gets for the envelopes with these ids."""
    signing = _signing(secret, owner).copy()
    signing.update(ids.encode())
    return f"{OWNED_RECEIPT}{signing.hexdigest()}.{ids}"


@lru_cache(maxsize=1_024)
def _signing(secret: str, owner: str) -> blake2b:
    """Made once for each owner, as that takes longer than to copy it."""
    return blake2b(digest_size=16, key=sha256(f"{len(secret)}:{secret}{owner}".encode()).digest())


# Reads who sends a request from its headers. Pure.


_OWN: Final = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site of requests that no other site has caused."""
_HOST: Final = re.compile(r"(?:([a-z0-9._-]+)|\[([0-9a-f:.]+)\])(?::[0-9]{1,5})?")


def host_without_port(host: str) -> str:
    """The name or address in a header Host, in lower case; empty if it is not written as one."""
    found = _HOST.fullmatch(host.lower())
    return "" if found is None else found[1] or found[2]


def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """The address, without a zone, and as one of IPv4 if it stands for such a one; None if the text is no address."""
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped if isinstance(found, IPv6Address) else None) or found


def is_loopback(name: str) -> bool:
    """Whether a name or an address always means this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = address_of(name)
    return address is not None and address.is_loopback


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether the page of another origin made a browser send this request."""
    origin = headers.get("Origin")
    if origin is not None:
        return not _is_own(origin, headers.get("Host", ""))
    return headers.get("Sec-Fetch-Site", "none") not in _OWN


def _is_own(origin: str, host: str) -> bool:
    """A proxy may have ended TLS, so the schemes are not compared."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower()


class Credentials(NamedTuple):
    """It is hashed with each request, so it holds only strings and flags."""

    host: str | None
    """Without its port; empty if it is no host, None if there is no header."""
    origin: str
    """The origin of the page that made a browser send the request, or empty."""
    is_foreign: bool
    """Whether that page is not one of this service."""
    navigates: bool
    """Whether a browser opens a page, because somebody follows a link."""
    asks_for: str
    """The method that a browser asks whether a page may use, in a preflight request; or empty."""
    authorization: tuple[str, ...]
    """All headers of this name. Only one of them is good."""
    forwarded: tuple[str, ...]
    """X-Forwarded-For, line by line."""

    def size(self) -> int:
        texts = (self.host or "", self.origin, self.asks_for, *self.authorization, *self.forwarded)
        return sum(map(len, texts))


MOST_PREFIXES: Final = 5
"""Prefixes of a key that an error names."""
NONE: Final = Credentials(None, "", False, False, "", (), ())
"""The credentials of a connection that does not speak HTTP."""


def credentials_in(headers: CIMultiDictProxy[str]) -> Credentials:
    hosts = headers.getall("Host", ())
    return Credentials(
        host_without_port(",".join(hosts)) if hosts else None,
        ",".join(headers.getall("Origin", ())),
        is_foreign(headers),
        headers.get("Sec-Fetch-Mode") == "navigate",
        headers.get("Access-Control-Request-Method", ""),
        tuple(headers.getall("Authorization", ())),
        tuple(headers.getall("X-Forwarded-For", ())),
    )


# Tells which client a request comes from if there are proxies in front of the service. Pure.


LONGEST_CHAIN: Final = 50
"""Addresses in X-Forwarded-For that are looked at."""


def client_of(peer: str, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """The address of the client: the last one in X-Forwarded-For that is not a trusted proxy's.

    A client can write what it likes into the header, but each proxy appends the address that it has seen. So addresses
    are believed from the right, as long as a trusted proxy has written them. `peer` is empty behind a Unix socket,
    which only programs can reach that may open it: they are trusted if anybody is.
    """
    client = peer
    if not trusts(peer, trusted):
        return client
    chain = [word.strip() for line in forwarded for word in line.split(",")]
    for word in reversed(chain[-LONGEST_CHAIN:]):
        address = _address_in(word)
        if address is None:
            break
        client = address
        if not _is_in(address, trusted):
            break
    return client


def trusts(peer: str, trusted: Sequence[Network]) -> bool:
    """Whether what this peer says in X-Forwarded-For is believed."""
    return bool(trusted) and (peer == "" or _is_in(peer, trusted))


def _address_in(word: str) -> str | None:
    """The address in a word of the header, which may have a port; None if it is no address."""
    if word.startswith("["):
        word = word[1:].partition("]")[0]
    elif word.count(":") == 1:
        word = word.partition(":")[0]
    try:
        return str(ip_address(word))
    except ValueError:
        return None


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    found = address_of(address)
    return found is not None and any(found in network for network in networks)


# The sender of a request, as far as it is known, and the counters, ids, receipts and jobs that it may use.


class Caller(NamedTuple):
    """Who sends a request, as far as the service has to know."""

    tenant: str
    """Whose share of the room a request takes: a key's, or a client's address."""
    client: str = ""
    """The client's address; empty behind a Unix socket."""
    key: Key | None = None
    bucket: Bucket | None = None
    """What the key may send now, if its rate is limited."""
    public: Public | None = None
    """What this client may send, if the key is publishable."""
    in_query: bool = False
    """Whether the key is in the query, as `key`."""
    ring: KeyRing | None = None
    """What knows whether the key is still valid, if there are keys."""
    only_counts: bool = False
    """Whether a page of another site has sent it, though there are no keys."""
    ends: float = math.inf
    """When its key expires, or its Google token, in seconds since 1970."""

    @property
    def owner(self) -> str:
        return "" if self.key is None else self.key.space

    @property
    def may_read(self) -> bool:
        return not self.only_counts if self.key is None else bool(TO_READ & self.key.may) and self.is_valid()

    def is_valid(self) -> bool:
        return self.key is None or self.ring is None or self.ring.renewed(self.key) == self.key

    def check_key(self) -> None:
        """Raise what the request is answered with if its key has ended or changed since it came in. Call it before
        anything is done after a wait: for the body, or for a turn.
        """
        if self.key is None or self.ring is None or self.is_valid():
            return
        if self.ring.renewed(self.key) is None:
            raise Problem(401, f"the key {self.key.id} has ended", headers={"WWW-Authenticate": "Bearer"})
        raise OverloadedError(f"the key {self.key.id} has changed since this request arrived: send the request again")

    @asynccontextmanager
    async def turn(self, lock: FairLock) -> AsyncIterator[None]:
        """A turn at what clients queue for, if the key is still valid then, and at its end."""
        async with lock.of(self.tenant):
            self.check_key()
            yield
            self.check_key()

    def check_names(self, names: Iterable[str]) -> None:
        if self.key is not None and not self.key.has_all(""):
            for name in names:
                check_name(self.key, name)

    def check_batch(self, batch: Batch) -> None:
        """Raise a 403 or a 413 if the caller may not send this batch. From then on, its ids are as they are stored."""
        self.check_size(batch.increments)
        self.check_names(batch.sums)
        self.check_names(item.counter for item in batch.keyed)
        batch.keyed = self.owned_items(batch.keyed)

    def check_prefix(self, prefix: str) -> None:
        if self.key is not None and not self.key.has_all(prefix):
            raise Problem(
                403,
                f"the key {self.key.id} may not use all counters under the prefix {prefix[:100]!r}, only"
                f" {_allowed(self.key)}",
            )

    def has(self, name: str) -> bool:
        """Whether the counter is the caller's."""
        return self.key is None or self.key.has(name)

    def has_all(self, prefix: str) -> bool:
        """Whether all counters under the prefix are the caller's."""
        return self.key is None or self.key.has_all(prefix)

    def prefixes_under(self, prefix: str) -> list[str]:
        """The prefixes, in order, of the counters under this one that are the caller's. None contains another one."""
        if self.key is None or self.key.has_all(prefix):
            return [prefix]
        found: list[str] = []
        for one in sorted(self.key.prefixes):
            if one.startswith(prefix) and not (found and one.startswith(found[-1])):
                found.append(one)
        return found

    @property
    def deltas(self) -> Deltas:
        return ALL_DELTAS if self.public is None else self.public.deltas

    @property
    def new(self) -> NewQuota | None:
        """How many new counters the caller may make; None if that is not limited for it alone."""
        return None if self.public is None else self.public.new

    def check_rate(self) -> None:
        """Raise `ShareError` if the caller may not send any increment now."""
        if self.public is not None:
            self.public.client.check()
        if self.bucket is not None:
            self.bucket.check()

    def check_size(self, increments: int) -> None:
        """Raise a 413 if the caller may not send this many increments in one request."""
        if self.public is not None and increments > self.public.most:
            raise BodyError(
                413,
                f"with this publishable key, a request may hold {amount(self.public.most, 'increment')}, and this one"
                f" holds {increments}: send several requests",
            )

    def spend(self, increments: int) -> None:
        """Count these against the rate of the key. Raises `ShareError` if it may not send any increment now. With a
        publishable key, this many must be free: no request may use up what others will send later.
        """
        if self.public is not None:
            self.public.client.check(increments)
            if self.bucket is not None:
                self.bucket.check(increments)
            self.public.client.take(increments)
        if self.bucket is not None:
            self.bucket.take(increments)

    def owned(self, id_: str) -> str:
        return owned(self.owner, id_)

    def owned_items(self, items: list[Increment]) -> list[Increment]:
        if not self.owner and not any((item.id or "").startswith(OWNED) for item in items):
            return items
        return [item._replace(id=self.owned(item.id or "")) for item in items]

    def batch_id(self, idempotency_key: str, content: Callable[[], bytes]) -> str:
        """The id of the envelope of a batch with this Idempotency-Key. With a publishable key, another `content` under
        it makes another id: anybody may guess it, and send something else first.
        """
        return batch_id(self.owner, self._guessable(content) + idempotency_key)

    def event_id(self, source: str, id_: str, content: Callable[[], bytes]) -> str:
        return event_id(self.owner, source, self._guessable(content) + id_)

    def _guessable(self, content: Callable[[], bytes]) -> str:
        return "" if self.public is None else content().hex()

    def receipt(self, ids: str) -> str:
        """The receipt that this caller gets for the envelopes with these ids. With keys it is signed, also for keys
        without an owner: otherwise these could ask for what is behind the signature of an owner's receipt.
        """
        return ids if self.key is None else signed("" if self.ring is None else self.ring.secret, self.owner, ids)

    def ids_in(self, receipt: str) -> str:
        """The ids of the envelopes. Raises a 404 if the caller's owner did not get this receipt."""
        if self.key is None:
            if not any(id_.startswith(OWNED_RECEIPT) for id_ in receipt.split(".")):
                return receipt
        elif compare_digest(receipt.encode(), self.receipt(ids := receipt.partition(".")[2]).encode()):
            return ids
        raise Problem(404, "this is no receipt of yours: send one from an answer, with a key of the same owner")

    def job(self, id_: str) -> str:
        """The stored form of a job's id. Ids have no slash."""
        return f"{self.owner}/{id_}" if self.owner else id_


def check_name(key: Key, name: str) -> None:
    if not key.has(name):
        raise Problem(403, f"the key {key.id} may not use the counter {name[:100]!r}, only {_allowed(key)}")


def _allowed(key: Key) -> str:
    some = [repr(prefix[:100]) for prefix in key.prefixes[:MOST_PREFIXES]]
    return f"those under {' or '.join(some)}" + (" and other prefixes" if len(key.prefixes) > MOST_PREFIXES else "")


# Logs what is done with the scope admin: who, what, from where.


ADMIN_LOG: Final = "countersink.audit"
"""The logger. Its lines are always written, whatever the log level, and never cut short."""
_admin_log = logging.getLogger(ADMIN_LOG)
_admin_log.setLevel(logging.INFO)


def note(caller: Caller, what: str) -> None:
    """Write a line before it is done. Without keys nobody is named, so there is none."""
    if caller.key is not None:
        _admin_log.info("key %s from %s: %s", caller.key.id, caller.client or "a Unix socket", what)

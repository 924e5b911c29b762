"""The sender of a request, as far as it is known, and the counters, ids, receipts and jobs that it may use."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from hmac import compare_digest
from typing import Any, Final, NamedTuple, cast

from aiohttp import web

from ingest.access.keyring import KeyRing
from ingest.access.keys import Key
from ingest.access.owners import OWNED, OWNED_RECEIPT, batch_id, event_id, owned, signed
from ingest.access.rates import Bucket, NewQuota, Public
from ingest.access.scopes import READ
from ingest.http.fair_lock import FairLock
from ingest.http.problems import Problem
from ingest.parsing.json_object import BodyError
from shared.model.errors import OverloadedError
from shared.model.words import ALL_DELTAS, Deltas, Increment


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

    @property
    def owner(self) -> str:
        return "" if self.key is None else self.key.space

    @property
    def may_read(self) -> bool:
        return not self.only_counts if self.key is None else READ in self.key.may and self.is_valid()

    def is_valid(self) -> bool:
        """Whether the key may still do what it might when the request came in."""
        return self.key is None or self.ring is None or self.ring.renewed(self.key) == self.key

    def check_key(self) -> None:
        """Raise what the request is answered with if its key has ended or changed since it came in. Call it before
        anything is done after a wait: for the body, or for a turn.
        """
        if self.key is None or self.ring is None or self.is_valid():
            return
        if self.ring.renewed(self.key) is None:
            raise Problem(401, f"the key {self.key.id} has ended", headers={"WWW-Authenticate": "Bearer"})
        raise OverloadedError(f"the key {self.key.id} has changed since this request came in: send it again")

    @asynccontextmanager
    async def turn(self, lock: FairLock) -> AsyncIterator[None]:
        """A turn at what clients queue for, if the key is still valid then, and at its end."""
        async with lock.of(self.tenant):
            self.check_key()
            yield
            self.check_key()

    def check_names(self, names: Iterable[str]) -> None:
        """Raise a 403 if one of these counters is not the caller's."""
        if self.key is not None and self.key.prefixes:
            for name in names:
                check_name(self.key, name)

    def check_prefix(self, prefix: str) -> None:
        """Raise a 403 if not all counters under the prefix are the caller's."""
        if self.key is not None and not self.may_use(prefix):
            raise Problem(403, f"the key {self.key.id} may not use all counters under the prefix {prefix[:100]!r}")

    def may_use(self, prefix: str) -> bool:
        """Whether all counters under the prefix are the caller's."""
        return self.key is None or not self.key.prefixes or prefix.startswith(self.key.prefixes)

    def prefixes_under(self, prefix: str) -> list[str]:
        """The prefixes, in order, of the counters under this one that are the caller's. None contains another one."""
        if self.key is None or not self.key.prefixes or prefix.startswith(self.key.prefixes):
            return [prefix]
        found: list[str] = []
        for one in sorted(self.key.prefixes):
            if one.startswith(prefix) and not (found and one.startswith(found[-1])):
                found.append(one)
        return found

    @property
    def deltas(self) -> Deltas:
        """Those that the caller may send."""
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
        """Raise a 413 if the caller may not send so many increments in one request."""
        if self.public is not None and increments > self.public.most:
            raise BodyError(
                413,
                f"one request may hold {self.public.most} increments with this publishable key, this one holds"
                f" {increments}: send several",
            )

    def spend(self, increments: int) -> None:
        """Count these against the rate of the key. Raises `ShareError` if it may not send any increment now. With a
        publishable key, so many must be free: no request may use up what others will send later.
        """
        if self.public is not None:
            self.public.client.check(increments)
            if self.bucket is not None:
                self.bucket.check(increments)
            self.public.client.take(increments)
        if self.bucket is not None:
            self.bucket.take(increments)

    def owned(self, id_: str) -> str:
        """The stored form of an id that this caller chose."""
        return owned(self.owner, id_)

    def owned_items(self, items: list[Increment]) -> list[Increment]:
        """The increments with ids as they are stored."""
        if not self.owner and not any((item.id or "").startswith(OWNED) for item in items):
            return items
        return [item._replace(id=self.owned(item.id or "")) for item in items]

    def batch_id(self, idempotency_key: str, content: Callable[[], bytes]) -> str:
        """The id of the envelope of a batch with this Idempotency-Key. With a publishable key, another `content` under
        it makes another id: anybody may guess it, and send something else first.
        """
        return batch_id(self.owner, self._guessable(content) + idempotency_key)

    def event_id(self, source: str, id_: str, content: Callable[[], bytes]) -> str:
        """The same of a CloudEvent."""
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
        raise Problem(404, "there is no such receipt")

    def job(self, id_: str) -> str:
        """The stored form of a job's id. Ids have no slash."""
        return f"{self.owner}/{id_}" if self.owner else id_


CALLER: Final["web.RequestKey[Caller]"] = (
    web.RequestKey("caller", Caller) if hasattr(web, "RequestKey") else cast("Any", "caller")  # before aiohttp 3.14
)
"""Handlers find the caller in the request under this key."""


def check_name(key: Key, name: str) -> None:
    """Raise a 403 if the key may not use this counter."""
    if key.prefixes and not name.startswith(key.prefixes):
        raise Problem(403, f"the key {key.id} may not use the counter {name[:100]!r}")

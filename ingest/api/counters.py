"""Reading counters, one or many, and changing one: its value and its number of shards."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Final, Literal

import orjson
from msgspec import UNSET, Meta, Struct, UnsetType, field, structs
from prometheus_client import CONTENT_TYPE_LATEST

from ingest.accept.new_names import NewNames
from ingest.access.callers import Caller, note
from ingest.api import fields
from ingest.api.fields import (
    Age,
    Body,
    Count,
    Flag,
    Instant,
    Json,
    Name,
    Nothing,
    PageToken,
    Part,
    Prefix,
    Read,
    ShardNumber,
)
from ingest.http.problems import Problem
from ingest.http.requests import Call, File, Query, limit_of, page_token
from ingest.parsing.parse import BodyError
from shared.config.lists import MOST_RANKED, NameLimit, duration_of
from shared.config.settings import flaw_of_shards
from shared.counters.reader import AllNames, Largest, Reader
from shared.counters.setter import DELETE, RESET, SET, ChangeRequest, Compactor, Setter
from shared.http.answers import SECURE
from shared.http.shares import FairLock
from shared.model.buckets import WallSeconds, written_at
from shared.model.errors import CrowdedError, NotAloneError, UnrankedError, amount
from shared.model.jobs import flaw_of_prefix
from shared.model.words import Reading, flaw_of_name, pages
from shared.ports.store import ShardNumbers
from shared.runtime import metrics

READS: Final = 4
"""Reads that may take long, such as of many counters, at once. Tenants take turns."""
MOST_NAMED: Final = 1_000
"""The most `name` parameters of one request. Metrics of counters are read in such parts, too."""
MOST_LISTED: Final = MOST_RANKED
"""The largest `limit` of a list. COUNTERSINK_TOP allows no larger one."""
DEFAULT_LISTED: Final = 100
ALL_BY_VALUE: Final = (NameLimit("", MOST_LISTED),)
NOT_BY_VALUE: Final = (
    "on Datastore, 'order=value' needs a prefix that COUNTERSINK_TOP names, and a 'limit' that it allows, as in"
    " COUNTERSINK_TOP=page:=100. Or read all pages and sort them, as 'countersink list --top' does"
)
NOT_BESIDE: Final = {
    "name": ("prefix", "contains", "limit", "page_token", "order", "unused_for"),
    "order=value": ("contains", "page_token", "unused_for"),
}
"""Which parameters of a list exclude which others. Counters by value have one page."""
_EXACT: Final = {True: b',"exact":true', False: b',"exact":false'}
NO_SEARCH: Final = (
    "'contains' needs a SQLite file as the store: Datastore would read the names of all counters. List those that begin"
    " with a 'prefix', or export all of them with a job"
)


def _span(query: Query, name: str) -> str | None:
    text = query.one(name)
    try:
        if text is not None:
            duration_of(text)
    except ValueError as error:
        raise Problem(422, f"'{name}': {error}", field=name) from None
    return text


class ListAsks(Age):
    name: Annotated[list[Name], Meta(max_length=MOST_NAMED)] = field(default_factory=list)
    """Not with `prefix`, `contains`, `limit` or `page_token`."""
    prefix: Prefix | None = None
    """List the counters whose names start with it; all counters if it is empty or missing."""
    contains: Part = ""
    """List the counters whose names have this text anywhere. Case matters. Only where the store is a SQLite file."""
    limit: Annotated[
        int | None,
        Read(lambda query, _: limit_of(query, MOST_LISTED)),
        Meta(ge=1, le=MOST_LISTED),
        Meta(extra_json_schema={"default": DEFAULT_LISTED}),
    ] = None
    """Maximum number of counters on a page."""
    page_token: PageToken = ""
    """The `next_page_token` of the previous page. Not with `order=value`, which has one page."""
    order: Literal["name", "value"] | None = None
    """`value`: the largest counters, the largest first, and of equal ones in the order of their names. On
    Datastore, only under prefixes that COUNTERSINK_TOP names. Otherwise counters are in the order of their names.
    """
    unused_for: Annotated[str | None, Read(_span), Meta(pattern=r"^[0-9]{1,9}[hdy]$", examples=["400d"])] = None
    """Only counters that were not changed for this long (hours, days, or years of 366 days) and have nothing
    pending. A page may hold fewer counters than `limit` then, or none. Not with `name` or `order=value`.
    """

    def __post_init__(self) -> None:
        asked = "name" if self.name else f"order={self.order}"
        for other in NOT_BESIDE.get(asked, ()):
            if getattr(self, other) != _UNASKED[other]:
                raise Problem(422, f"'{other}' can't be combined with '{asked}'", field=other)


_UNASKED: Final = {one.name: one.default for one in structs.fields(ListAsks)}


class Counter(Json):
    """The counter. One that was never seen or was deleted is 0 with `exists: false`."""

    name: Name
    value: int
    """applied + pending"""
    applied: int
    """The part that is in the store at the instant as_of."""
    pending: int
    """The part that is accepted but not applied yet."""
    exact: bool
    as_of: Instant
    shards: Count
    exists: bool
    generation: Count
    """It changes when the counter is set, reset or deleted, and not when it counts."""
    updated_at: Instant | None
    """When the applied part changed last, by the clock of the store; null if nothing was applied."""


class Counters(Json):
    """The counters, in the order of the UTF-8 bytes of their names, of the `name` parameters, or of their values."""

    counters: list[Counter]
    next_page_token: str | None
    """null on the last page. A page may hold fewer counters than `limit`, or none, since deleted counters are left out.
    """
    exact: bool | UnsetType = UNSET
    """Not with `name`. Whether the list is known to have every counter that was counted before the request. If it is
    false, one that is not stored yet may be missing. With `order=value`: whether these were the largest at one instant.
    """


# The values of counters as metrics, for Prometheus. They are not in `/metrics`, which is about the service itself.


MOST_SCRAPED: Final = 10_000
"""Counters in one answer."""
_HEAD: Final = (
    "# HELP countersink_counter_value The total of a counter. A set, reset or delete may lower it.\n"
    "# TYPE countersink_counter_value gauge\n"
)
_WHOLE: Final = (
    "# HELP countersink_counter_values_exact 1 if all totals are exact.\n"
    "# TYPE countersink_counter_values_exact gauge\n"
    "countersink_counter_values_exact {:d}\n"
)
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"'})
"""No name has a line break, the third character that the format escapes."""
_LINE: Final = 'countersink_counter_value{{name="{}"}} {}\n'


class MetricsAsks(Age):
    prefix: Prefix = ""
    """Only counters whose names start with it."""


class ReadRoutes:
    """Answers reads. An answer that is not exact says so."""

    def __init__(
        self, reader: Reader, names: AllNames, turns: FairLock, *, largest: Largest, top: Sequence[NameLimit]
    ) -> None:
        """Tenants take `turns`. `top`: how many of the largest counters may be asked for, under which prefixes."""
        self._reader = reader
        self._names = names
        self._turns = turns
        self._largest = largest
        self._top = top

    async def get_counter(self, _: Call, name: str, asks: Age) -> Annotated[bytes, Counter]:
        """Read one counter"""
        return await self.read_one(name, asks.max_age)

    async def read_one(self, name: str, max_age: float | None = None) -> bytes:
        (reading,) = await self._reader.read((name,), max_age)
        return render(reading)

    async def cached(self, names: Sequence[str], max_age: float | None) -> dict[str, bytes]:
        """The JSON of those counters for which a look will do that is made within the call."""
        found = await self._reader.cached(names, max_age)
        return {name: render(reading) for name, reading in found.items()}

    async def list_counters(self, call: Call, asks: ListAsks) -> Annotated[bytes, Counters]:
        """Read several counters: by `name`, in that order, or by `prefix`, page by page or the largest first"""
        return await self.read_many(call.caller, asks)

    async def read_many(self, caller: Caller, asks: ListAsks) -> bytes:
        async with caller.turn(self._turns):
            return await (self._named if asks.name else self._under)(caller, asks)

    async def _named(self, caller: Caller, asks: ListAsks) -> bytes:
        check_asked_names(asks.name, MOST_NAMED)
        caller.check_names(asks.name)
        return self._page(await self._reader.read(asks.name, asks.max_age), None, b"")

    async def _under(self, caller: Caller, asks: ListAsks) -> bytes:
        prefix = asks.prefix or ""
        check_prefix(prefix)
        if flaw := flaw_of_prefix(asks.contains):
            raise Problem(422, f"'contains' {flaw}", field="contains")
        if asks.contains and not self._names.searchable:
            raise Problem(422, NO_SEARCH, field="contains")
        prefixes, limit = caller.prefixes_under(prefix), asks.limit or DEFAULT_LISTED
        if asks.order == "value":
            return await self._by_value(prefixes, limit)
        names, exact = await self._names.under(prefixes, limit + 1, asks.page_token, asks.contains)
        token = page_token(names[limit - 1]) if len(names) > limit else None
        found = await self._reader.read(names[:limit], asks.max_age)
        readings = [reading for reading in found if reading.exists]  # a deleted counter may still be stored
        if asks.unused_for is not None:
            span = duration_of(asks.unused_for)
            readings = [reading for reading in readings if reading.is_unused_since(int(reading.as_of * 1_000) - span)]
        return self._page(readings, token, _EXACT[exact])

    async def _by_value(self, prefixes: Sequence[str], limit: int) -> bytes:
        if any(self._most_under(prefix) < limit for prefix in prefixes):
            raise Problem(422, NOT_BY_VALUE, field="order")
        try:
            readings, exact = await self._largest.read(prefixes, limit)
        except UnrankedError as error:
            raise Problem(422, str(error), field="order") from None
        return self._page(readings, None, _EXACT[exact])

    def _most_under(self, prefix: str) -> int:
        """How many of the largest counters under the prefix may be asked for."""
        return max((one.most for one in self._top if prefix.startswith(one.prefix)), default=0)

    def _page(self, readings: Sequence[Reading], token: str | None, more: bytes) -> bytes:
        counters = b",".join([render(reading) for reading in readings])
        next_token = orjson.dumps(token) if token else b"null"
        return b'{"counters":[%b],"next_page_token":%b%b}' % (counters, next_token, more)

    async def counter_metrics(self, call: Call, asks: MetricsAsks) -> File:
        """The totals of at most {MOST_SCRAPED:,} counters, for Prometheus"""
        check_prefix(asks.prefix)
        caller = call.caller
        async with caller.turn(self._turns):
            names, exact = await self._names.under(caller.prefixes_under(asks.prefix), MOST_SCRAPED + 1)
            if len(names) > MOST_SCRAPED:
                raise Problem(
                    422, f"there are more than {MOST_SCRAPED:,} counters: add a longer 'prefix'", field="prefix"
                )
            lines = [_HEAD]
            for some in pages(names, MOST_NAMED):
                for one in await self._reader.read(some, asks.max_age):
                    exact = exact and one.exact
                    if one.exists:
                        lines.append(_LINE.format(one.name.translate(_ESCAPES), one.value))
        body = "".join([*lines, _WHOLE.format(exact)]).encode()
        return File(body, {"Content-Type": CONTENT_TYPE_LATEST, **SECURE})


def render(reading: Reading) -> bytes:
    """The JSON of a counter. It is not made by orjson, which refuses integers beyond 64 bits."""
    name, applied, pending, exact, as_of, shards, exists, generation, updated = reading
    return (
        b'{"name":%b,"value":%d,"applied":%d,"pending":%d,"exact":%b,"as_of":%b,"shards":%d,"exists":%b,'
        b'"generation":%d,"updated_at":%b}'
    ) % (
        orjson.dumps(name),
        applied + pending,
        applied,
        pending,
        b"true" if exact else b"false",
        _instant(as_of),
        shards,
        b"true" if exists else b"false",
        generation,
        _instant(WallSeconds(updated / 1_000)) if updated else b"null",
    )


@lru_cache
def _instant(seconds: WallSeconds) -> bytes:
    """An instant in JSON. Many counters of a list have the same one."""
    return orjson.dumps(written_at(seconds))


def check_asked_names(names: Sequence[str], most: int) -> None:
    """Raise a 422 if these are too many in one query, or one is not a counter's name."""
    if len(names) > most:
        raise Problem(422, f"at most {most:,} names in one request", field="name")
    for name in names:
        if flaw := flaw_of_name(name):
            raise Problem(422, f"the counter's name {flaw}", field="name")


def check_prefix(prefix: str) -> None:
    if flaw := flaw_of_prefix(prefix):
        raise Problem(422, f"'prefix' {flaw}", field="prefix")


class ChangeAsks(Struct):
    key: fields.Once = field(name=fields.ONCE, default=None)
    """Makes it safe to send the request again: it is done once, and each answer is the first one."""


class SetValue(Body):
    value: fields.Value

    like = '{"value": n}'


class Changed(Json):
    """It is done. Every read from now on shows it."""

    name: Name
    before: int
    """The value before, with all increments accepted until then."""
    after: int
    """The value after. Later increments are added to it."""


class SetShards(Body):
    shards: ShardNumber
    compact: Flag = False
    """Whether the number of shards may be lowered."""

    like = '{"shards": n}'


class Shards(Json):
    """The present number. Without `compact`, a lower number than that changes nothing."""

    name: Name
    shards: ShardNumber


class ChangeRoutes:
    """Sets, resets and deletes counters, and changes their numbers of shards."""

    def __init__(
        self, setter: Setter, store: ShardNumbers, compactor: Compactor, max_shards: int, new_names: NewNames
    ) -> None:
        self._setter = setter
        self._store = store
        self._compactor = compactor
        self._max_shards = max_shards
        self._new_names = new_names

    async def set_counter(self, call: Call, name: str, asks: ChangeAsks, body: SetValue) -> Changed:
        """Set a counter. Later increments are added to the value"""
        await self._new_names.check(name)
        return await self._change(call.caller, name, asks, SET, body.value)

    async def delete_counter(self, call: Call, name: str, asks: ChangeAsks, _: Nothing) -> Changed:
        """Delete a counter. It is 0, and is not listed until it is counted again"""
        return await self._change(call.caller, name, asks, DELETE)

    async def reset_counter(self, call: Call, name: str, asks: ChangeAsks, _: Nothing) -> Changed:
        """Set a counter to 0"""
        return await self._change(call.caller, name, asks, RESET)

    async def _change(self, caller: Caller, name: str, asks: ChangeAsks, kind: str, value: int = 0) -> Changed:
        note(caller, f"{kind} {name!r}" + (f" to {value}" if kind == SET else ""))
        wish = ChangeRequest(kind, value, None if asks.key is None else caller.owned(asks.key))
        before, after = await self._setter.set(name, wish)
        if after != value:  # the receipt of an earlier one tells
            raise Problem(
                422,
                f"the counter was set to {after} under this Idempotency-Key before, so this request changed nothing:"
                " send another value under a new key",
                field="Idempotency-Key",
            )
        return Changed(name, before, after)

    async def raise_shards(self, call: Call, name: str, body: SetShards) -> Shards:
        """Raise the number of shards. Only `compact` lowers it"""
        if flaw := flaw_of_shards(body.shards, self._max_shards):
            raise BodyError(422, f"'shards' {flaw}", "shards")
        await self._new_names.check(name)
        note(call.caller, f"give {name!r} {amount(body.shards, 'shard')}" + (", compacted" if body.compact else ""))
        if body.compact:
            await self._compact(name, body.shards)
        return Shards(name, await self._store.raise_shards(name, body.shards))

    async def _compact(self, name: str, shards: int) -> None:
        before = (await self._store.shards([name])).get(name, 0)
        try:
            if await self._compactor.compact(name, shards) < before:
                metrics.COMPACTIONS.labels("asked").inc()
        except NotAloneError as error:
            raise Problem(409, str(error)) from None
        except CrowdedError as error:
            raise Problem(409, f"{error}: choose a larger number") from None

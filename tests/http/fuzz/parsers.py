"""Gives the same bytes to a fast parser and a slow one: the fast one must say the same, or leave them to the other."""

import asyncio
import json
from collections.abc import Callable
from random import Random
from types import FunctionType, SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from aiohttp import web
from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDictProxy

from ingest.access.callers import credentials_in
from ingest.http.fast_path import FastPath
from ingest.http.router import LOG
from ingest.parsing import parse
from ingest.parsing.parse import BodyError
from shared.http.heads import CHUNKED, Heads, RefusedError, lent
from shared.model.buckets import BrokerMillis
from shared.model.errors import NewerError, UnreadableError
from shared.model.words import Delivery, Message
from shared.wire import codec, strict_json
from tests.http import parse_model as model
from tests.http.fuzz import bodies
from tests.http.fuzz.requests import request
from tests.http.fuzz.side import MAX_BODY

_HEADS: Final = Heads(FastPath(None, None, None, MAX_BODY, log=LOG).head)  # type: ignore[arg-type] # it only looks
Answers = tuple[Any, Any]
"""What the fast parser says, and the slow one."""


def parsers(seed: int) -> tuple[bytes, str]:
    """What this seed generates, and how the parsers differ about it; empty if they do not."""
    chance = Random(seed)
    compare, data = chance.choice(
        (
            (_json, bodies.single),
            (single, bodies.single),
            (batch, bodies.batch),
            (batch, bodies.plain_batch),
            (_message, bodies.batch),
            (_message, _own_message),
            (head, _request),
        )
    )
    body = data(chance)
    return body, difference(compare, body)


def difference(compare: Callable[[bytes], Answers], body: bytes) -> str:
    """How the parsers differ about a body; empty if they do not."""
    name = compare.__name__.strip("_")
    try:
        fast, slow = compare(body)
    except Exception as error:
        return f"{name} failed: {error!r}"
    return "" if repr(fast) == repr(slow) else f"{name}\nfast: {fast!r}\nslow: {slow!r}"


def _json(body: bytes) -> Answers:
    try:
        fast = strict_json.loads(body)
    except strict_json.JsonError:
        fast = "refused"
    return fast, _slow_json(body)


def _slow_json(body: bytes) -> Any:
    """As the standard library reads it, strictly."""
    try:
        model.load(body)  # refuses names that stand twice, constants, and lone surrogates
        return json.loads(body, parse_int=_integer)
    except (model.BadError, ValueError):
        return "refused"


def _integer(digits: str) -> int | float:
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else float(digits)


def single(body: bytes) -> Answers:
    """The parser of one increment, and the model."""
    try:
        fast: Any = parse.single(body, None)
    except BodyError as error:
        fast = _refused(error)
    try:
        return fast, model.single(body)
    except model.BadError:
        return fast, "refused"


def batch(body: bytes) -> Answers:
    """Three parsers: of the plain form, of all forms without it, and the model."""
    slow = _parsed(_LEAVING_NOTHING, body)
    for fast in (_parsed(parse.batch, body), _parsed(parse.quick, body)):
        if fast is not None and repr(fast) != repr(slow):
            return fast, slow
    try:
        meaning = model.batch(body)
    except model.BadError:
        return slow, "refused"
    if slow == "refused":
        return slow, meaning
    batch = slow.batch
    assert all(item["reason"] for item in slow.rejected)
    assert batch.counts.keys() <= batch.sums.keys()
    assert sum(batch.counts.get(name, 1) for name in batch.sums) + len(batch.keyed) == batch.increments > 0
    keyed = [(item.counter, item.delta, item.id) for item in batch.keyed]
    rejected = [item["index"] if "index" in item else item["counter"] for item in slow.rejected]
    return (batch.sums, keyed, batch.increments, slow.bad, rejected), (
        dict(meaning.sums),
        meaning.keyed,
        meaning.good,
        len(meaning.bad),
        meaning.bad[: parse.MOST_REJECTIONS],
    )


def _parsed(parse_batch: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        parsed = parse_batch(body)
    except BodyError as error:
        return _refused(error)
    if parsed is not None:
        parsed.batch.counts = dict(sorted(parsed.batch.counts.items()))  # their order means nothing
    return parsed


def _refused(error: BodyError) -> str:
    assert error.status in {400, 413, 422}
    assert error.detail
    return "refused"


def _with(function: Any, **names: Any) -> Any:
    """The same function, for which these global names mean something else."""
    return FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__, function.__defaults__)


_LEAVING_NOTHING: Final = _with(parse.batch, plain_batch=lambda *_: None)
"""`parse.batch` without the parser of the plain form."""


def _message(body: bytes) -> Answers:
    """With the fast check for names that stand twice, and with the standard library; and encoded again."""
    ours = body.startswith(b"{") and b'"created"' in body
    attributes = {"ce-type": codec.TYPE, "ce-id": "it"} if ours else {}
    delivery = _delivered(Message(body, attributes))
    fast = _decoded(codec.decode, delivery)
    slow = _decoded(_slow_decode, delivery)
    if fast != slow or isinstance(fast, str) or not ours or len(fast) > 1:
        return fast, slow
    return codec.decode(_delivered(codec.encode(fast[0])), "topic"), fast


def _delivered(message: Message) -> Delivery:
    return Delivery("1", message, "1", BrokerMillis(1))


def _decoded(decode: Callable[[Delivery, str], Any], delivery: Delivery) -> Any:
    try:
        return decode(delivery, "topic")
    except (UnreadableError, NewerError):
        return "unreadable"


def _slow_loads(text: bytes) -> Any:
    value = _slow_json(text)
    if value == "refused":
        raise strict_json.JsonError(value)
    return value


def _slow_decode(delivery: Delivery, topic: str) -> Any:
    """`codec.decode` with the standard library's parser, and without the parser of what we write."""
    slow = SimpleNamespace(**{**vars(strict_json), "loads": _slow_loads})
    with patch.object(codec, "strict_json", slow), patch.object(codec, "own_data", lambda _: None):
        return codec.decode(delivery, topic)


def _own_message(chance: Random) -> bytes:
    """What we write, or nearly so: members may be missing, unknown, of another kind, or there twice."""
    names = [
        chance.choice(bodies.PLAIN_NAMES[: chance.choice((4, 4, len(bodies.PLAIN_NAMES)))])
        for _ in range(chance.randint(0, 3))
    ]
    sums = [(name, chance.choice((-9, 1, 1, 7, 2**61, -(2**61) - 1))) for name in names]
    members: list[tuple[str, Any]] = [("counters", sums), ("created", chance.choice((0, 1, 10**12, 10**12, -1, 1.5)))]
    if chance.random() < 0.5:
        members.append(("counts", [(name, chance.choice((0, 1, 2, 2, 2, 2**40, -1))) for name in names]))
    if chance.random() < 0.5:
        item = {
            "id": chance.choice(bodies.PLAIN_IDS),
            "counter": chance.choice(bodies.PLAIN_NAMES[:6]),
            "delta": chance.choice(bodies.PLAIN_DELTAS),
        }
        fields = [field for field in item.items() if chance.random() < 0.95]
        members.append(("keyed", [dict(fields)]))
    if chance.random() < 0.3:
        members.append(("retried", chance.choice((True, True, False, 1, None))))
    if chance.random() < 0.1:
        members.append(chance.choice([*members, ("other", 1)]))
    if chance.random() < 0.05:
        members.remove(chance.choice(members))
    return bodies.perhaps_damaged(chance, _object(members).encode())


def _object(members: list[tuple[str, Any]]) -> str:
    """JSON of an object in which names may stand twice, as they may in the objects in it."""
    written = [
        f"{json.dumps(name)}:{_object(value) if name in {'counters', 'counts'} else json.dumps(value)}"
        for name, value in members
    ]
    return f"{{{','.join(written)}}}"


def _request(chance: Random) -> bytes:
    return request(chance, undurable=False).data


def head(data: bytes) -> Answers:
    """What the front takes for a head, aiohttp reads as the same one."""
    block, _, _ = data.lstrip(b"\r\n").partition(b"\r\n\r\n")
    try:
        line, known = _HEADS.read(block)
    except RefusedError:
        return None, None
    passed = lent(block + b"\r\n\r\n", is_last=known.is_last)
    loop = asyncio.new_event_loop()
    try:
        return (*line, known.length, known.is_last, known.plain and (known.plain.said, known.plain.key)), _by_aiohttp(
            passed, loop, is_plain=known.plain is not None, is_last=known.is_last
        )
    finally:
        loop.close()


def _by_aiohttp(data: bytes, loop: asyncio.AbstractEventLoop, *, is_plain: bool, is_last: bool) -> Any:
    protocol: Any = web.Server(_nobody, loop=loop)()
    parser = HttpRequestParser(
        protocol, loop, 2**16, max_line_size=32_768, max_field_size=32_768, auto_decompress=False
    )
    try:
        messages, upgraded, rest = parser.feed_data(data)
    except HttpProcessingError as error:
        return repr(error)
    if len(messages) != 1 or upgraded or rest:
        return f"{len(messages)} requests, {upgraded}, {rest!r}"
    ((message, _),) = messages
    if message.should_close != (is_last or (message.version.minor == 0 and not _stays(message.headers))):
        return f"closes: {message.should_close}"
    length = CHUNKED if message.chunked else int(message.headers.get("Content-Length", "0"))
    said = (credentials_in(message.headers), message.headers.get("Idempotency-Key")) if is_plain else None
    minor = b"%d" % message.version.minor
    return message.method.encode(), message.path.encode(), minor, length, is_last, said


def _stays(headers: CIMultiDictProxy[str]) -> bool:
    return any("keep-alive" in value.lower() for value in headers.getall("Connection", ()))


async def _nobody(_: web.BaseRequest) -> web.StreamResponse:
    raise NotImplementedError

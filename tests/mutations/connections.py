"""Mutations of connections: the fast path differs from aiohttp, or one request leaks into the next."""

from typing import Any

from ingest.api.routes import find
from tests.mutations.mutation import Instead, around, calling, mutation, returning
from tests.mutations.places import BAD_HTTP, FUZZ, PLAIN


@around("the fast path takes the last of two idempotency keys", "shared.http.heads.Heads._headers", FUZZ)
def _(read: Any, self: Any, block: bytes) -> Any:
    lines = block.split(b"\r\n")
    keys = [line for line in lines if line.lower().startswith(b"idempotency-key:")]
    return read(self, b"\r\n".join([line for line in lines if line not in keys[:-1]]))


@around("the fast path does not check the prefixes of a key", "ingest.http.fast_path.FastPath.begin", FUZZ)
def _(begin: Any, self: Any, request: Any, front: Any) -> Any:
    door = self._door
    self._door = Instead(door, enter=lambda _, *others: door.enter(find("POST", "/v1/increments"), *others))
    try:
        return begin(self, request, front)
    finally:
        self._door = door


@mutation("aiohttp gets the trailers of a chunked body", "shared.http.heads.Chunks._line", FUZZ)
def _(read: Any) -> Any:
    """Its parser gives the next request the last one."""

    def mutant(self: Any, line: bytes) -> bytes:
        in_trailer = self._in_trailer
        passed = read(self, line)
        if not in_trailer:
            return bytes(passed or (b"0\r\n" if self._in_trailer else b""))
        return b"\r\n" if self.done else line

    return mutant


mutation("a request is begun before the one before it is answered", "shared.http.front.Front._is_free", FUZZ)(
    lambda _: lambda self: not (self._stuck or self._deaf or self._owed)
)

mutation("names that stand twice are not looked for", "shared.wire.strict_json._surely_unique", FUZZ)(returning(True))
mutation("names that stand twice in a plain batch", "shared.wire.codec.surely_unique", FUZZ)(returning(True))
mutation("items of a plain batch that share a line", "ingest.parsing.parse._are_lines", FUZZ)(returning(True))
mutation("sums of a plain batch have no bound", "ingest.parsing.parse._bounded", PLAIN)(calling(MAX_SUM=2**70))


@around("a body with a broken end is taken", "ingest.http.bodies.Bodies._receive", BAD_HTTP)
async def _(receive: Any, self: Any, request: Any, reserved: Any, limit: int) -> Any:
    content = Instead(request.content, exception=lambda: None)
    return await receive(self, Instead(request, content=content), reserved, limit)

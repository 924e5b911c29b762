"""Mutations of connections: the fast path differs from aiohttp, or one request leaks into the next."""

from typing import Any, Final

from tests.mutations.mutation import Instead, calling, mutation, returning
from tests.mutations.places import BAD_HTTP, FUZZ, PLAIN

_SERVER: Final = "ingest.server"


@mutation("the fast path takes the last of two idempotency keys", "ingest.server.fast_path._head", FUZZ)
def _(head: Any) -> Any:
    def mutant(block: bytes, *, traced: bool) -> Any:
        lines = block.split(b"\r\n")
        keys = [line for line in lines if line.lower().startswith(b"idempotency-key:")]
        return head(b"\r\n".join([line for line in lines if line not in keys[:-1]]), traced=traced)

    return mutant


@mutation("the fast path does not check the prefixes of a key", "ingest.server.connection.Connection._begin", FUZZ)
def _(begin: Any) -> Any:
    def mutant(self: Any, data: bytes) -> Any:
        door = self._door
        self._door = Instead(door, enter=lambda method, _, *others: door.enter(method, "/v1/increments", *others))
        try:
            return begin(self, data)
        finally:
            self._door = door

    return mutant


@mutation(
    "a connection goes on after a chunked body",
    (f"{_SERVER}.aiohttp_connection.AiohttpConnection.close_after", f"{_SERVER}.connection.Connection.data_received"),
    FUZZ,
)
def _(there: Any) -> Any:
    """Aiohttp's parser gives the next request the last trailer."""
    if there.__name__ == "close_after":
        return lambda self: bool(self.unanswered())

    def mutant(self: Any, data: bytes) -> None:
        if self._last is not None and self._last.is_eof() and self.waits_alone():
            self._last = None
        there(self, data)

    return mutant


mutation("names that stand twice are not looked for", "shared.wire.strict_json._surely_unique", FUZZ)(returning(True))
mutation("names that stand twice in a plain batch", "shared.wire.plain.surely_unique", FUZZ)(returning(True))
mutation("items of a plain batch that share a line", "ingest.parsing.plain._are_lines", FUZZ)(returning(True))
mutation("sums of a plain batch have no bound", "ingest.parsing.plain._bounded", PLAIN)(calling(MAX_SUM=2**70))


@mutation("a body with a broken end is taken", "ingest.http.bodies.Bodies._receive", BAD_HTTP)
def _(receive: Any) -> Any:
    async def mutant(self: Any, request: Any, share: Any, limit: int) -> Any:
        content = Instead(request.content, exception=lambda: None)
        return await receive(self, Instead(request, content=content), share, limit)

    return mutant

"""A gRPC server before an emulator: it passes calls on, or answers them itself with a code that it is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc


class Front:
    """Stands for a proxy that is routed wrongly, for permissions that are taken away, and for servers that are busy."""

    def __init__(self, host: str) -> None:
        self.codes: dict[str, grpc.StatusCode] = {}
        """By the method's name, as "Publish"; "" is every method."""
        self.late: set[str] = set()
        """Methods whose first call from now on is passed on and never answered."""
        self.address = ""
        self.refused = 0
        """Calls that were answered with a code of `codes`."""
        self.routes: set[str] = set()
        """By which Google routes calls."""
        self._channel = grpc.aio.insecure_channel(host)

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2]
        self.routes |= {value for key, value in details.invocation_metadata if key == "x-goog-request-params"}

        async def answer(request: bytes, context: Any) -> bytes:
            code = self.codes.get(name, self.codes.get(""))
            if name in self.late:
                self.late.discard(name)
                await self.pass_on(details.method, request, context)
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
            if code is not None:
                self.refused += 1
                await context.abort(code, "said the front")
            return await self.pass_on(details.method, request, context)

        return grpc.unary_unary_rpc_method_handler(answer)

    async def pass_on(self, method: str, request: bytes, context: Any) -> bytes:
        try:
            return bytes(await self._channel.unary_unary(method)(request, timeout=context.time_remaining()))
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
            raise

    async def close(self) -> None:
        await self._channel.close()


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc is not typed
    def __init__(self, one: Front) -> None:
        self._front = one

    def service(self, handler_call_details: Any) -> Any:
        return self._front.service(handler_call_details)


@asynccontextmanager
async def front(host: str, kind: type[Front] = Front) -> AsyncIterator[Front]:
    one = kind(host)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([_Handler(one)])
    one.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield one
    finally:
        await server.stop(None)
        await one.close()

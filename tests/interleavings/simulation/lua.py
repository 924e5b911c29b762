"""Runs the scripts of the overlay as Redis does: the real text, in Lua 5.1, on the keys of a stand-in for a server."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import orjson
from lupa import lua51 as lua

Call = Callable[[Sequence[bytes]], Any]
"""Runs one command on the server that the script runs on."""


class _Runtime:
    """Lua keeps nothing from one script to the next, so one runtime does for all servers."""

    def __init__(self) -> None:
        self._lua = lua.LuaRuntime(encoding=None, unpack_returned_tuples=False)
        self._table = self._lua.eval("function() return {} end")
        self._compiled: dict[str, Any] = {}
        self._call: Call = _nobody
        install = self._lua.eval(
            "function(call, decode)"
            " redis = {call = function(...) return call(...) end, pcall = function(...) return call(...) end}"
            " cjson = {decode = function(text) return decode(text) end} end"
        )
        install(self._redis_call, self._decode)

    def run(self, text: str, prefix: bytes, arguments: Sequence[bytes], call: Call) -> Any:
        """What a client is answered."""
        script = self._compiled.get(text)
        if script is None:
            source = f"return function(KEYS, ARGV) {text}\nend"
            script = self._compiled[text] = self._lua.execute(source.encode())
        self._call = call
        try:
            found = script(self._lua.table_from([prefix]), self._lua.table_from(arguments))
        finally:
            self._call = _nobody
        return self._told(found)

    def _redis_call(self, *words: Any) -> Any:
        return self._shown(self._call([as_word(word) for word in words]))

    def _shown(self, reply: Any) -> Any:
        """To a script nil is false."""
        if reply is None:
            return False
        if isinstance(reply, list):
            return self._lua.table_from([self._shown(one) for one in reply])
        return reply

    def _decode(self, text: bytes) -> Any:
        return self._lua.table_from({name.encode(): said.encode() for name, said in orjson.loads(text).items()})

    def _told(self, found: Any) -> Any:
        """To a client a number has no fraction, and a table ends before its first nil."""
        if found is None or found is False:
            return None
        if found is True:
            return 1
        if isinstance(found, float):
            return int(found)
        if lua.lua_type(found) == "table":
            told, at = [], 1
            while (one := found[at]) is not None:
                told.append(self._told(one))
                at += 1
            return told
        return found


def _nobody(command: Sequence[bytes]) -> Any:
    raise AssertionError(f"a command outside of a script: {command!r}")


def as_word(value: Any) -> bytes:
    """An argument as Redis sees it; numbers of a script as Redis 7 writes them."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return b"%d" % value if value == int(value) else b"%.17g" % value


@cache
def runtime() -> _Runtime:
    """The one of this process."""
    return _Runtime()

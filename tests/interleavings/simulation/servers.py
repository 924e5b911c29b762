"""Redis servers that can die, forget, hang, be promoted and be full, and the connections to them."""

import asyncio
import copy
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit

from shared.model.errors import TransientError
from shared.redis.scripts import Script
from shared.redis.server import AwayError, FullError
from tests.interleavings.simulation.keys import Keys
from tests.interleavings.simulation.lua import as_word, runtime
from tests.interleavings.simulation.network import Network

_DATE: Final = 1_800_000_000
_WRITES: Final = frozenset({b"HSET", b"HINCRBY", b"ZADD", b"SADD", b"INCR", b"INCRBY"})
"""Commands that a Redis without memory refuses, unless the script has already written."""
_SHRINKS: Final = frozenset({b"HDEL", b"ZREM", b"SREM", b"DEL"})


class OutOfMemoryError(Exception):
    """Nothing was done."""


class RedisServer:
    """One server process at a time, on one machine."""

    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self.name = name
        self._now = now
        self._runs = count(1)
        self._histories = count(1)
        self.keys = Keys()
        self.off = 0.0
        """Seconds by which its clock is wrong."""
        self.master = True
        self.up = True
        self.full = False
        self.hangs_until = 0.0
        self.run_id = ""
        self.replid = ""
        self.start()

    def start(self) -> None:
        """An empty one, after it was killed."""
        self.keys = Keys()
        self.up = self.master = True
        self.run_id = f"{self.name}.run{next(self._runs)}"
        self.new_history()

    def new_history(self) -> None:
        """Another `master_replid`: from now on it may differ from what it was a replica of."""
        self.replid = f"{self.name}.replid{next(self._histories)}"

    def follow(self, master: "RedisServer") -> None:
        """Become a replica, with all that the master holds now."""
        self.keys = copy.deepcopy(master.keys)
        self.master = False
        self.replid = master.replid

    def promote(self) -> None:
        self.master = True
        self.new_history()

    def run(self, text: str, prefix: bytes, arguments: Sequence[Any]) -> Any:
        """One script."""
        return runtime().run(text, prefix, [as_word(one) for one in arguments], self._step())

    def ask(self, command: Sequence[Any]) -> Any:
        """One command."""
        return self._step()([as_word(one) for one in command])

    def _step(self) -> Callable[[Sequence[bytes]], Any]:
        written = False

        def call(command: Sequence[bytes]) -> Any:
            nonlocal written
            name = command[0].upper()
            if name == b"INFO":
                return self._info(command[1])
            if name == b"TIME":
                now = int((_DATE + self._now() + self.off) * 1_000_000)
                return [b"%d" % (now // 1_000_000), b"%d" % (now % 1_000_000)]
            if self.full and name in _WRITES and not written:
                raise OutOfMemoryError
            written |= name in _WRITES or name in _SHRINKS
            return self.keys.run(command)

        return call

    def _info(self, section: bytes) -> bytes:
        if section == b"server":
            return f"# Server\r\nredis_version:7.0.15\r\nrun_id:{self.run_id}\r\n".encode()
        if section == b"memory":
            return b"# Memory\r\nmaxmemory_policy:noeviction\r\n"
        role = "master" if self.master else "slave"
        return f"# Replication\r\nrole:{role}\r\nmaster_replid:{self.replid}\r\nmaster_replid2:0\r\n".encode()


class Site:
    """Which server answers at an address, for each process. An address has two servers, one of them a spare."""

    def __init__(self, now: Callable[[], float], hosts: Sequence[str]) -> None:
        self.pairs = {host: (RedisServer(f"{host}1", now), RedisServer(f"{host}2", now)) for host in hosts}
        self.front = dict.fromkeys(hosts, 0)
        """Which of the two everybody reaches…"""
        self.astray: set[str] = set()
        """The processes that reach the other one."""

    def server(self, owner: str, host: str) -> RedisServer:
        return self.pairs[host][self.front[host] ^ (owner in self.astray)]

    def current(self, host: str) -> tuple[RedisServer, RedisServer]:
        """The one that most reach, and its spare."""
        pair = self.pairs[host]
        return pair[self.front[host]], pair[1 - self.front[host]]


class SimulatedLinks:
    """In place of `shared.redis.server.Links`.

    Every call goes out once. It may arrive when nobody waits for it any more, or its answer may be lost.
    """

    def __init__(self, network: Network, owner: str, site: Site, url: str) -> None:
        self._network = network
        self._owner = owner
        self._site = site
        self._host = urlsplit(url).hostname or ""

    async def run(self, script: Script, prefix: bytes, *arguments: Any) -> Any:
        return await self._call(lambda server: server.run(script.text, prefix, arguments))

    async def call(self, *command: Any) -> Any:
        return await self._call(lambda server: server.ask(command))

    async def _call(self, effect: Callable[[RedisServer], Any]) -> Any:
        server = self._site.server(self._owner, self._host)
        run = server.run_id

        async def arrives() -> Any:
            now = asyncio.get_running_loop().time()
            if server.hangs_until > now:
                await asyncio.sleep(server.hangs_until - now)
            if not server.up or server.run_id != run:
                raise AwayError("the connection was lost")
            try:
                return effect(server)
            except OutOfMemoryError:
                raise FullError("Redis is full") from None

        try:
            return await self._network.call(self._owner, f"redis {server.name}", arrives)
        except AwayError:
            raise
        except TransientError as error:
            raise AwayError(f"Redis is unavailable: {error}") from error

    async def drop(self) -> None:
        """There is nothing to drop: each call looks for the server again."""

    async def close(self) -> None:
        """Nothing is kept open."""

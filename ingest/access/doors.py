"""The doors of one process: one for each socket that it listens on, all with the same keys."""

import socket
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from ingest.access.credentials import credentials_in
from ingest.access.door import Door
from ingest.access.keyring import LOOK, KeyRing
from ingest.access.origins import is_loopback
from ingest.access.pictures import Pictures
from ingest.http.problems import problem_of
from ingest.http.requests import target_of
from shared.config.settings import Settings
from shared.http.tenants import peer_of
from shared.runtime.clock import Clock
from shared.runtime.supervise import forever

Refuse = Callable[[web.BaseRequest], web.Response | None]
"""Returns the answer to a request that may not come in."""


def _nothing() -> None:
    pass


class Doors:
    """Makes doors, and tells them when the keys file has changed."""

    def __init__(self, settings: Settings, clock: Clock, changed: Callable[[], None] = _nothing) -> None:
        """`changed` is called then, too: requests that go on were let in by keys that may be gone. Raises
        `SettingsError` if there is to be a keys file, and it can't be read or is wrong.
        """
        self._changed = changed
        self._settings = settings
        self._clock = clock
        self._ring = KeyRing(Path(settings.keys_file), clock) if settings.keys_file else None
        self._doors: list[Door] = []

    def add(self) -> Door:
        settings = self._settings
        door = Door(
            self._ring,
            trusted=settings.trusted_proxies,
            origins=settings.origins,
            hosts=settings.hosts,
            pictures=Pictures(settings.pixels, settings.badges),
            clock=self._clock,
        )
        self._doors.append(door)
        return door

    def at(self, sock: socket.socket) -> Refuse:
        """A door for a server that asks it at each request."""
        door = self.add()
        door.is_local = is_local(sock)

        def refuse(request: web.BaseRequest) -> web.Response | None:
            peer = "" if request.transport is None else peer_of(request.transport)
            try:
                door.enter(request.method, *target_of(request), credentials_in(request.headers), peer)
            except Exception as error:
                return problem_of(error).response()
            return None

        return refuse

    async def tend(self) -> None:
        """Look at the keys file again and again."""
        await forever(self._look, LOOK)

    async def _look(self) -> None:
        if self._ring is not None and await self._ring.look():
            for door in self._doors:
                door.forget()
            self._changed()


def is_local(sock: socket.socket) -> bool:
    """Whether only this machine can connect, over an address that a browser can be sent to."""
    return sock.family in {socket.AF_INET, socket.AF_INET6} and is_loopback(sock.getsockname()[0])

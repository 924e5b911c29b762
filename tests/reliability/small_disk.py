"""A small disk of its own, in memory, that processes see in place of a folder; and a file on it.

In a namespace everybody may mount what he likes. It lasts as long as the process that made it, and those within.
"""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from shared.model.words import Message
from tests.processes.fleet.pairs import LEASE, DeadLetter, Pair

SIZE = "8m"
_MAKE = f'mount -t tmpfs -o size={SIZE} tmpfs "$0" && echo made && read _'
_ASK = """
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(json.dumps([[v.decode() if isinstance(v, bytes) else v for v in row] for row in db.execute(sys.argv[2])]))
"""
_BALLAST = "ballast"


class SmallDisk:
    """Made at once; what is started `within` sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # It ends with us at the latest: then its standard input does.
        command = ("unshare", "--map-root-user", "--mount", "sh", "-c", _MAKE, str(folder))
        self._maker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._maker.stdout
        assert self._maker.stdout.readline() == "made\n"

    @property
    def within(self) -> Sequence[str]:
        return ("nsenter", "--target", str(self._maker.pid), "--user", "--mount")

    async def fill(self, leave: int = 0) -> None:
        """Except for so many bytes."""
        await self.run("sh", "-c", f'cat /dev/zero 2>/dev/null >"$0"; truncate --size=-{leave} "$0"', self._ballast)

    async def free(self) -> None:
        await self.run("rm", "-f", self._ballast)

    @property
    def _ballast(self) -> str:
        return str(self.folder / _BALLAST)

    async def run(self, *command: str) -> bytes:
        process = await asyncio.create_subprocess_exec(*self.within, *command, stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        assert process.returncode == 0, command
        return said

    async def close(self) -> None:
        await asyncio.to_thread(self._maker.communicate, "\n")


class OnSmallDisk(Pair):
    """One SQLite file there. Nobody publishes on it from outside."""

    exact = True
    instants = False

    def __init__(self, folder: Path) -> None:
        self.disk = SmallDisk(folder)
        self._file = str(folder / "countersink.db")
        self.settings = {"COUNTERSINK_BROKER": f"sqlite:///{self._file}", "COUNTERSINK_LEASE": str(LEASE)}

    async def publish(self, messages: Sequence[Message]) -> None:
        raise NotImplementedError

    async def left(self) -> int:
        ((count,),) = await self._rows("SELECT count(*) FROM messages WHERE buried IS NULL")
        return int(count)

    async def dead_letters(self) -> Sequence[DeadLetter]:
        rows = await self._rows("SELECT data, buried FROM messages WHERE buried IS NOT NULL")
        return [DeadLetter(data.encode(), reason) for data, reason in rows]

    async def close(self) -> None:
        try:
            assert await self._rows("PRAGMA integrity_check") == [["ok"]]
        finally:
            await self.disk.close()

    async def _rows(self, query: str) -> list[Any]:
        return list(orjson.loads(await self.disk.run(sys.executable, "-c", _ASK, self._file, query)))

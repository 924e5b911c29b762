"""Redis behind webdis, which makes a command of each HTTP request: with a sync before each answer, with one each
second, with none, and with a script that moves the sums to SQLite.
"""

import contextlib
import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, cast

import redis

from bench import load
from bench.load import Load
from bench.peers.peer import Counting, Peer, listens, started, tool
from bench.peers.write_behind import KEY
from bench.servers import Server
from bench.shapes import COUNTER, Shape
from deploy.processes import free_port

THREADS: Final = 4
"""Of webdis. With 1 and 2 it was slower."""
_SETTLED: Final = 30.0


@contextlib.contextmanager
def _redis(folder: Path, sync: str) -> Iterator[Path]:
    """Its socket. `sync` is `appendfsync`, or `none` if nothing is written at all."""
    program, path = tool("redis-server"), folder / "redis.sock"
    file = ("--appendonly", "no") if sync == "none" else ("--appendonly", "yes", "--appendfsync", sync)
    command = (program, "--port", "0", "--unixsocket", str(path), "--dir", str(folder), "--save", "", *file)
    with started(command, folder / "redis.log", path.exists):
        yield path


@contextlib.contextmanager
def _webdis(folder: Path, socket: Path) -> Iterator[Server]:
    program, port, settings = tool("webdis"), free_port(), folder / "webdis.json"
    settings.write_text(
        json.dumps(
            {
                "redis_host": str(socket),
                "http_host": "127.0.0.1",
                "http_port": port,
                "threads": THREADS,
                "pool_size": 10,
                "daemonize": False,
                "verbosity": 0,
                "logfile": str(folder / "webdis.log"),
            }
        )
    )
    with started((program, str(settings)), folder / "webdis.out", partial(listens, port)) as process:
        yield Server(process, f"http://127.0.0.1:{port}")


def _total(socket: Path) -> int:
    """As Redis itself says: webdis may answer what another client asked, if that has gone."""
    with contextlib.closing(redis.Redis(unix_socket_path=str(socket))) as server:
        return int(cast("bytes | None", server.get(COUNTER)) or 0)


def _load(server: Server, path: str, seconds: float, connections: int) -> Load:
    return load.run(server, Shape(path, method="GET"), seconds, connections)


@contextlib.contextmanager
def _alone(folder: Path, sync: str) -> Iterator[Counting]:
    with _redis(folder, sync) as socket, _webdis(folder, socket) as server:
        yield Counting(partial(_load, server, f"/INCR/{COUNTER}"), partial(_total, socket))


@contextlib.contextmanager
def _behind(folder: Path) -> Iterator[Counting]:
    with _redis(folder, "everysec") as socket, _webdis(folder, socket) as server:
        file = folder / "sums.db"
        script = (sys.executable, "-m", "bench.peers.write_behind", str(socket), str(file))

        def ask(statement: str) -> int:
            with contextlib.closing(sqlite3.connect(file)) as database:
                return int(database.execute(statement).fetchone()[0])

        def total() -> int:
            """What is written after the next turn of the script that begins now or later."""
            until, turn = time.monotonic() + _SETTLED, ask("PRAGMA user_version")
            while ask("PRAGMA user_version") < turn + 2:
                if time.monotonic() > until:
                    raise RuntimeError("the script of the write-behind does not write")
                time.sleep(0.05)
            return ask("SELECT coalesce(sum(value), 0) FROM sums")

        with started(script, folder / "script.log", lambda: file.exists() and ask("PRAGMA user_version") > 0):
            yield Counting(partial(_load, server, f"/HINCRBY/{KEY}/{COUNTER}/1"), total)


PEERS: Final = (
    Peer(
        "redis-always",
        "webdis + Redis, `appendfsync always`",
        "all, if the power fails",
        partial(_alone, sync="always"),
    ),
    Peer(
        "redis-everysec",
        "webdis + Redis, `appendfsync everysec`",
        "all but the last second or two, if the power fails",
        partial(_alone, sync="everysec"),
    ),
    Peer(
        "redis-none",
        "webdis + Redis, nothing on disk",
        "nothing, if Redis or the power fails",
        partial(_alone, sync="none"),
    ),
    Peer(
        "write-behind",
        "webdis + Redis, and a script that moves sums to SQLite each second",
        "all but the last second or two, if the power fails; what the script has just taken is lost if it is killed",
        _behind,
    ),
)

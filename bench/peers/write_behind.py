"""The script that people write first: each second, it takes the sums out of Redis and adds them to SQLite.

What it has taken and not yet written is lost if it is killed. If it took the sums after the write instead, a kill in
between would count them twice. `python -m bench.peers.write_behind SOCKET FILE`
"""

import sqlite3
import sys
import time
from itertools import count
from typing import Final

import redis

KEY: Final = "waiting"
INTERVAL: Final = 1.0


def main(socket: str, file: str) -> None:
    server = redis.Redis(unix_socket_path=socket)
    database = sqlite3.connect(file)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE sums (name TEXT PRIMARY KEY, value INTEGER)")
    for turn in count(1):
        transaction = server.pipeline()
        transaction.hgetall(KEY)
        transaction.delete(KEY)
        sums, _ = transaction.execute()
        with database:
            database.executemany(
                "INSERT INTO sums VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
                [(name.decode(), int(value)) for name, value in sums.items()],
            )
            database.execute(f"PRAGMA user_version = {turn}")
        time.sleep(INTERVAL)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""PostgreSQL with `INSERT … ON CONFLICT DO UPDATE`, one transaction for each increment or for 1,000. Its own load
generator, pgbench, connects to it directly, so the figures have no HTTP in them.

Commits that wait at the same time share a sync anyway: with `commit_delay`, it was slower.
"""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from bench import machine
from bench.load import Load
from bench.peers.peer import Counting, Peer, started, tool
from bench.shapes import BATCH, NAMES

USER: Final = "postgres"
"""Who runs the server if we are root, whom it refuses."""
SETTINGS: Final = {
    "listen_addresses": "",
    "max_connections": 300,
    "shared_buffers": "128MB",
    "max_wal_size": "4GB",
}
CONNECTED: Final = 128
"""Connections for which pgbench gets a second more: it connects within its time, and leaves that out of its rate."""
_ADD: Final = "INSERT INTO counters {} ON CONFLICT (name) DO UPDATE SET value = counters.value + 1;\n"
ONE: Final = _ADD.format("VALUES ('views', 1)")
MANY: Final = f"\\set number random(0, {NAMES - 1})\n" + _ADD.format("VALUES ('views-' || :number, 1)")
BATCHED: Final = _ADD.format(f"SELECT 'views-' || number, 1 FROM generate_series(1, {BATCH}) AS number")


@contextlib.contextmanager
def _running(folder: Path, script: str, each: int = 1) -> Iterator[Counting]:
    programs = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    initdb, server, psql, pgbench = (tool(name, *programs) for name in ("initdb", "postgres", "psql", "pgbench"))
    user = USER if os.geteuid() == 0 else None
    if user:
        shutil.chown(folder, user)
    data, file = folder / "data", folder / "script.sql"
    init = (initdb, "-D", str(data), "-U", USER, "-A", "trust", "--no-locale", "-E", "UTF8")
    subprocess.run(init, check=True, capture_output=True, user=user, cwd=folder)
    where = ("-h", str(folder), "-U", USER)

    def ask(statement: str) -> str:
        command = (psql, *where, "-d", USER, "-Atqc", statement)
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    options = [f"-c{key}={value}" for key, value in SETTINGS.items()]
    command = (server, "-D", str(data), "-k", str(folder), *options)
    with started(command, folder / "postgres.log", lambda: ask("SELECT 1") == "1", user):
        ask("CREATE TABLE counters (name text PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 50)")
        file.write_text(script)
        yield Counting(
            partial(_load, folder, (pgbench, *where, "-n", "-M", "prepared", "-j", "1", "-f", str(file))),
            lambda: int(ask("SELECT coalesce(sum(value), 0) FROM counters")),
            each,
        )


def _load(folder: Path, pgbench: tuple[str, ...], seconds: float, connections: int) -> Load:
    log = folder / "transactions"
    command = (
        *pgbench,
        "-c",
        str(connections),
        "-T",
        str(round(seconds) + connections // CONNECTED),
        "-l",
        "--log-prefix",
        str(log),
        USER,
    )
    with machine.on(machine.GENERATOR):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    done = re.search(r"transactions actually processed: (\d+)", ended.stdout)
    rate = re.search(r"tps = ([\d.]+)", ended.stdout)
    if ended.returncode or not done or not rate:
        raise RuntimeError(f"pgbench failed: {ended.stdout}{ended.stderr}")
    times: list[int] = []
    for file in folder.glob(f"{log.name}.*"):
        times += [int(line.split()[2]) for line in file.read_text().splitlines()]
        file.unlink()
    times.sort()
    return Load(
        seconds=int(done[1]) / float(rate[1]),
        answered=int(done[1]),
        refused=0,
        broken=0,
        p50=times[len(times) // 2] / 1000,
        p99=times[len(times) * 99 // 100] / 1000,
    )


_SAFE: Final = "all, if the power fails"
ON_ONE: Final = Peer("postgres", "PostgreSQL upserts, no HTTP", _SAFE, partial(_running, script=ONE))
ON_MANY: Final = Peer("postgres", "PostgreSQL upserts, no HTTP", _SAFE, partial(_running, script=MANY))
IN_BATCHES: Final = Peer(
    "postgres", "PostgreSQL, one upsert of 1,000 rows, no HTTP", _SAFE, partial(_running, script=BATCHED, each=BATCH)
)

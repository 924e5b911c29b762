"""The Datastore emulators: started once per test run, shared by its workers; each test has a project of its own."""

import asyncio
import fcntl
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from countersink_server.cli.audit import Line, look
from deploy.emulators import gcloud_environment
from deploy.processes import free_port
from shared.datastore.client import DatastoreClient
from shared.datastore.keys import DatastorePlace
from shared.datastore.store import DatastoreStore
from shared.model.errors import AlreadyAppliedError, TransientError
from shared.model.words import Commit
from shared.runtime.clock import SystemClock
from tests.emulators import keeper
from tests.needs import program
from tests.once import folder_of_run

LONGEST_START = 60.0
TRIES = 3
FIRESTORE = ("emulators", "firestore", "start", "--database-mode=datastore-mode")
OLDER = (
    *("beta", "emulators", "datastore", "start", "--no-store-on-disk", "--project=any"),
    "--use-firestore-in-datastore-mode",  # or queries may miss what was just written
)


@contextmanager
def shared_emulator(base: Path, name: str, arguments: tuple[str, ...]) -> Iterator[str]:
    """Its host and port. The first worker that needs it starts it; it ends after the last one."""
    for tool in ("gcloud", "java"):
        program(tool)
    address, lock = base / f"{name}.address", base / f"{name}.lock"
    with lock.open("a") as held, (base / f"{name}.starting").open("a") as starting:
        fcntl.flock(held, fcntl.LOCK_SH)
        fcntl.flock(starting, fcntl.LOCK_EX)
        if not address.exists():
            address.write_text(_start(base, name, arguments, lock, address))
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield address.read_text()


def _start(base: Path, name: str, arguments: tuple[str, ...], lock: Path, address: Path) -> str:
    log = base / f"{name}.log"
    for _ in range(TRIES):
        host = f"127.0.0.1:{free_port()}"
        kept = ["gcloud", *arguments, f"--host-port={host}"]
        command = [sys.executable, keeper.__file__, str(lock), str(address), *kept]
        environment = gcloud_environment(base / f"{name}.gcloud")
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        until = time.monotonic() + LONGEST_START
        while process.poll() is None and time.monotonic() < until:
            if _answers(host):
                process.returncode = 0  # the keeper outlives this worker; nobody has to wait for it
                return host
            time.sleep(0.1)
        if process.poll() is None:
            process.terminate()
            process.wait()
    raise AssertionError(f"the emulator {name} does not start: {log.read_text()[-1_000:]}")


def _answers(host: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{host}/", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="session")
def firestore_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Firestore emulator in Datastore mode."""
    with shared_emulator(folder_of_run(tmp_path_factory), "firestore", FIRESTORE) as host:
        yield host


@pytest.fixture(scope="session")
def older_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The older Datastore emulator, which the product refuses."""
    with shared_emulator(folder_of_run(tmp_path_factory), "datastore", OLDER) as host:
        yield host


@dataclass
class Datastore:
    """A project of an emulator, empty at first, and any number of stores in it, each as of a process of its own.

    Queries get slower with each entity that the project has or had, in any namespace: so each test has a project.
    """

    host: str
    place: DatastorePlace = field(default_factory=lambda: DatastorePlace(f"test-{uuid4().hex}", namespace="test"))
    clock: SystemClock = field(default_factory=SystemClock)
    clients: list[DatastoreClient] = field(default_factory=list)

    def client(self, host: str = "") -> DatastoreClient:
        client = DatastoreClient(self.place, self.clock, host or self.host)
        client.time = self.clients[0].time if self.clients else client.time  # in the product floors tell
        self.clients.append(client)
        return client

    async def put(self, key: Any, properties: Mapping[str, Mapping[str, Any]]) -> None:
        """As another application would: of each property its value, by the name of its kind."""
        client = self.client()
        request = client.commit_request()
        entity = request.mutations.add().upsert
        entity.key.CopyFrom(key)
        for name, value in properties.items():
            for kind, one in value.items():
                setattr(entity.properties[name], kind, one)
        await client.commit(request)

    async def delete(self, *keys: Any) -> None:
        """As anybody may."""
        client = self.client()
        request = client.commit_request()
        for key in keys:
            request.mutations.add().delete.CopyFrom(key)
        await client.commit(request)

    async def store(self, client: DatastoreClient | None = None) -> DatastoreStore:
        store = DatastoreStore(client or self.client())
        await store.check()
        return store


@pytest.fixture
async def datastore(firestore_host: str) -> AsyncIterator[Datastore]:
    one = Datastore(firestore_host)
    yield one
    for client in one.clients:
        await client.close()


async def insist(store: DatastoreStore, one: Commit) -> None:
    """Apply it as a flusher does: again, until it is done or its receipts tell that it was."""
    while True:
        try:
            await store.apply(one)
        except AlreadyAppliedError:
            return
        except TransientError:
            await asyncio.sleep(0.01)
        else:
            return


async def audited(store: DatastoreStore, counter: str = "a") -> Line:
    """What an audit finds of one counter."""
    with closing(await look(store, [counter], 0.0)) as ledger:
        (line,) = ledger.lines()
    return line

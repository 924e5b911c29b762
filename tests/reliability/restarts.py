"""Emulators that end and come back on the same port: with what they kept, or, as Pub/Sub's does, with nothing."""

import asyncio
import urllib.request
from pathlib import Path

import orjson

from tests.processes.fleet.pairs import LEASE, Emulated
from tests.reliability.rows import CLOUD, Clients, Row
from tests.reliability.scene import Scene

AWAKE = (1.0, 3.0)
EMPTY = 30.0
"""Seconds for flushers to empty the backlog, at most."""


async def store(scene: Scene, seconds: float) -> None:
    """Nobody reaches it while it is saved: when it ends, it loses commits that it had acknowledged."""
    until = scene.seconds + seconds
    while scene.seconds < until:
        await asyncio.sleep(scene.chance(*AWAKE))
        scene.store_wire.close()
        await _exported_and_killed(scene)
        scene.store_wire.open()


async def _exported_and_killed(scene: Scene) -> None:
    """It keeps nothing by itself, so it is exported, and killed."""
    folder = scene.folder / f"export-{scene.seconds}"
    folder.mkdir()
    assert isinstance(scene.pair, Emulated)
    await asyncio.to_thread(_export, scene.hurt.host, scene.pair.datastore.place.project, folder)
    await asyncio.to_thread(scene.hurt.kill)
    await asyncio.to_thread(scene.hurt.start, f"--import-data={next(folder.rglob('*.overall_export_metadata'))}")


def _export(host: str, project: str, folder: Path) -> None:
    body = {"database": f"projects/{project}/databases/", "export_directory": str(folder), "export_name": "all"}
    request = urllib.request.Request(
        f"http://{host}/emulator/v1/projects/{project}:export",
        orjson.dumps(body),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


async def broker(scene: Scene, seconds: float) -> None:
    """Ingest can't reach it, flushers empty it, then it is killed. Topics are gone, too, until they are made again."""
    until = scene.seconds + seconds
    while scene.seconds < until:
        await asyncio.sleep(scene.chance(*AWAKE))
        scene.ingest_wire.close()
        async with asyncio.timeout(EMPTY):
            await _empty(scene)
        await asyncio.to_thread(scene.hurt.kill)
        await asyncio.to_thread(scene.hurt.start)
        scene.ingest_wire.open()
        await asyncio.sleep(scene.chance(*AWAKE))
        said = await scene.command("provision")
        assert ": made" in said, said


async def _empty(scene: Scene) -> None:
    """Twice nothing comes, a lease apart: what our own pull was given when it ended is somebody's until then."""
    found = [1]
    while any(found[-2:]):
        await asyncio.sleep(LEASE + 1)
        found.append(await scene.pair.left())


ROWS = (
    Row(
        "store-restarted",
        "the Datastore emulator is cut off, gets SIGKILL, and is started again on an export",
        store,
        (CLOUD,),
        wires=True,
        hurt="store",
        recovery=180.0,
    ),
    Row(
        "broker-restarted",
        "SIGKILL of the Pub/Sub emulator while it holds nothing, and it is started again without topics; then"
        " `countersink provision`",
        broker,
        (CLOUD,),
        clients=Clients(foreign=0),
        wires=True,
        hurt="broker",
    ),
)

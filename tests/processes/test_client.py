"""The client in programs: servers and clients are killed, processes fork and end, and each increment counts once."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from countersink.sender import AT_EXIT
from tests.meta.checkout import ROOT
from tests.processes.harness import Processes, Running, processes, total

UP = ("up", "--port")


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path / "data", tmp_path / "log", COUNTERSINK_FLUSH_INTERVAL="0.05") as it:
        yield it


def program(text: str, *arguments: str, at_exit: float = 60.0) -> subprocess.Popen[str]:
    """Another program, which has the client and no other package. The machine may pause while it ends."""
    text = f"from countersink import sender\nsender.AT_EXIT = {at_exit}\n{textwrap.dedent(text)}"
    command = [sys.executable, "-S", "-u", "-c", text, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


async def said(started: "subprocess.Popen[str]", code: int = 0) -> str:
    out, _ = await asyncio.to_thread(started.communicate, timeout=60)
    assert started.returncode == code, out
    return out


async def heard(client: "subprocess.Popen[str]") -> str:
    """What it has printed when it was told three times that all it counted is accepted."""
    assert client.stdout
    lines = [await asyncio.to_thread(client.stdout.readline)]
    while sum(line.startswith("told ") for line in lines) < 3 and lines[-1]:
        lines.append(await asyncio.to_thread(client.stdout.readline))
    return "".join(lines)


async def test_the_end_of_a_program_sends_what_it_counted(there: Processes) -> None:
    service = await there.start(*UP, "0")
    text = """
        import sys
        from countersink import Client
        counters = Client(sys.argv[1])
        for _ in range(1000):
            counters.incr("a")
        if sys.argv[2] == "error":
            raise SystemExit(3)
    """
    assert await said(program(text, service.url, "end")) == ""
    assert await said(program(text, service.url, "error"), 3) == ""
    assert await total(service.url, "a") == 2_000


async def test_the_end_of_a_program_does_not_wait_long_for_a_service_that_is_away() -> None:
    text = """
        import atexit, threading, time
        from countersink import Client
        ticks = 0

        def tick():
            global ticks
            while True:
                time.sleep(0.01)
                ticks += 1

        threading.Thread(target=tick, daemon=True).start()
        counters = Client("http://127.0.0.1:1")
        counters.incr("a")
        began, ticks = time.monotonic(), 0
        atexit._run_exitfuncs()
        print(time.monotonic() - began, ticks)
    """
    out = await said(program(text, at_exit=AT_EXIT))
    assert "dropped 1 increment:" in out
    seconds, ticks = out.splitlines()[-1].split()
    assert float(seconds) > 1.5
    assert int(ticks) < 350  # they stand still while the machine does


async def test_a_child_that_counts_before_it_begins_its_work_sends_everything(there: Processes) -> None:
    """As one of a fork server that imports the main module. `multiprocessing` then forgets what it had registered."""
    service = await there.start(*UP, "0")
    text = """
        import multiprocessing.process, multiprocessing.util, os, sys
        from countersink import Client
        counters = Client(sys.argv[1])
        counters.incr("a")
        multiprocessing.process.BaseProcess._after_fork()
        counters.incr("a")
        multiprocessing.util._exit_function()
        os._exit(0)
    """
    assert await said(program(text, service.url)) == ""
    assert await total(service.url, "a") == 2


@pytest.mark.parametrize("method", ["flush", "get"])
async def test_the_end_of_a_program_does_not_wait_for_what_was_cancelled(method: str) -> None:
    text = """
        import asyncio, sys
        from countersink import AsyncClient

        async def main():
            counters = AsyncClient("http://127.0.0.1:1", patience=1000)
            counters.incr("a")
            try:
                await asyncio.wait_for(counters.flush(1000) if sys.argv[1] == "flush" else counters.get("a"), 0.1)
            except TimeoutError:
                print("cancelled")

        asyncio.run(main())
    """
    assert "cancelled" in await said(program(text, method, at_exit=AT_EXIT))


FORKS = """
    import multiprocessing, os, sys, threading
    from countersink import Client

    counters = Client(sys.argv[1], interval=float(sys.argv[2]))

    def count(number):
        for _ in range(1000):
            counters.incr("a")
        counters.incr(f"child:{number}")

    def parent():
        while not stop.is_set():
            counters.incr("parent")
            parent.counted += 1

    parent.counted = 0
    if sys.argv[3] == "busy":
        stop = threading.Event()
        thread = threading.Thread(target=parent)
        thread.start()
    counters.incr("before")
    if sys.argv[4] == "os":
        children = []
        for number in range(5):
            pid = os.fork()
            if not pid:
                count(number)
                left = 0 if counters.flush(30) and not counters.dropped else 1
                os._exit(left)
            children.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 5
    else:
        context = multiprocessing.get_context(sys.argv[4])
        children = [context.Process(target=count, args=(number,)) for number in range(5)]
        for child in children:
            child.start()
        for child in children:
            child.join()
    if sys.argv[3] == "busy":
        stop.set()
        thread.join()
    counters.incr("after")
    assert counters.flush(30)
    print(parent.counted, counters.dropped)
"""


@pytest.mark.parametrize("kind", ["os", "fork"])
@pytest.mark.parametrize("parent", ["idle", "busy"])
@pytest.mark.parametrize("interval", ["0", "5"])
async def test_children_of_a_fork_count_for_themselves(there: Processes, kind: str, parent: str, interval: str) -> None:
    """With a long interval the parent still holds something when it forks; with none its thread is at work."""
    service = await there.start(*UP, "0")
    counted, dropped = map(int, (await said(program(FORKS, service.url, interval, parent, kind))).split())
    assert dropped == 0
    assert await total(service.url, "a") == 5_000
    assert [await total(service.url, f"child:{number}") for number in range(5)] == [1] * 5
    assert await total(service.url, "before") == await total(service.url, "after") == 1
    assert await total(service.url, "parent") == counted


COUNTS = """
    import sys, time
    from countersink import Client

    counters = Client(sys.argv[1], interval=0.01)
    for turn in range(int(sys.argv[2])):
        print("begun", turn + 1)
        for number in range(100):
            counters.incr("a")
            counters.incr("b", 2, id=f"{sys.argv[3]}-{turn}-{number}")
        if counters.flush(0.1):
            print("told", turn + 1)
    assert counters.flush(60)
    assert not counters.dropped
"""


async def test_servers_are_killed_and_each_increment_counts_once(there: Processes) -> None:
    service = await there.start(*UP, "0")
    turns = 60
    client = program(COUNTS, service.url, str(turns), "x")
    port = str(service.port)
    while client.poll() is None:
        await asyncio.sleep(0.4)
        assert await service.end(signal.SIGKILL)
        await asyncio.sleep(0.1)
        service = await there.start(*UP, port)
        if await asyncio.to_thread(_ended, client):
            break
    await said(client)
    assert await total(service.url, "a") == 100 * turns
    assert await total(service.url, "b") == 200 * turns


def _ended(client: "subprocess.Popen[str]") -> bool:
    try:
        client.wait(0.4)
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.parametrize("both", [False, True])
async def test_clients_are_killed_and_nothing_is_lost_that_they_were_told(there: Processes, both: bool) -> None:
    service: Running = await there.start(*UP, "0")
    port = str(service.port)
    least = most = 0
    for life in range(4):
        client = program(COUNTS, service.url, "100000", f"{life}")
        lines = await heard(client)
        if both:
            await service.end(signal.SIGKILL)
        client.kill()
        out = lines + (await asyncio.to_thread(client.communicate))[0]
        least += max([0, *map(int, re.findall(r"^told (\d+)$", out, re.MULTILINE))])
        most += max([0, *map(int, re.findall(r"^begun (\d+)$", out, re.MULTILINE))])
        if both:
            service = await there.start(*UP, port)
    counted = await total(service.url, "a")
    assert least
    assert 100 * least <= counted <= 100 * most
    assert 200 * least <= await total(service.url, "b") <= 200 * most

"""The clocks of a process can be moved apart while it runs, and nothing that it waits for hangs or hurries."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.processes.moved_clocks import DAY, Clocks

pytestmark = pytest.mark.check  # a C compiler

ASKS = """
import json, sys, time
for _ in sys.stdin:
    boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    print(json.dumps([time.time(), time.monotonic(), boot]), flush=True)
"""
WAITS = """
import asyncio, json, sys, threading, time
import uvloop

def took(work):
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun

def of_loop(new_loop):
    loop = new_loop()
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()

def of_condition():
    condition = threading.Condition()
    with condition:
        condition.wait(0.05)

WAYS = {
    "sleep": lambda: time.sleep(0.05),
    "lock": lambda: HELD.acquire(timeout=0.05),
    "condition": of_condition,
    "asyncio": lambda: of_loop(asyncio.new_event_loop),
    "uvloop": lambda: of_loop(uvloop.new_event_loop),
    "other threads": lambda: [t := threading.Thread(target=time.sleep, args=(0.05,)), t.start(), t.join(5)],
}
HELD = threading.Lock()
HELD.acquire()
for line in sys.stdin:
    print(json.dumps({name: took(work) for name, work in WAYS.items()}), flush=True)
"""
SQLITE = """
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for _ in sys.stdin:
    print(json.dumps(db.execute("SELECT unixepoch(), unixepoch('now')").fetchone()), flush=True)
"""
GRPC = """
import asyncio, json, sys, time
import grpc, grpc.aio

async def main():
    async def answer(request, context):
        return request

    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"m": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    here, nowhere = f"127.0.0.1:{port}", "127.0.0.1:9"
    async with grpc.aio.insecure_channel(here) as channel, grpc.aio.insecure_channel(nowhere) as no:
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            answered = await channel.unary_unary("/s/m")(b"x", timeout=20)
            begun = time.perf_counter()
            try:
                await no.unary_unary("/s/m")(b"x", timeout=0.5, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                ended = error.code().name
            print(json.dumps([answered.decode(), ended, time.perf_counter() - begun]), flush=True)
    await server.stop(None)

asyncio.run(main())
"""
MOVES: list[dict[str, float]] = [{}, {"real": 30 * DAY}, {"real": -60 * DAY}, {"monotonic": DAY, "boot": 2 * DAY}]


class Asked:
    """A Python program that answers each line with one line of JSON."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def ask(self) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextmanager
def running(clocks: Clocks, program: str, *arguments: str) -> Iterator[Asked]:
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | clocks.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Asked(process)
        finally:
            process.kill()


def kernel() -> tuple[float, float, float]:
    return time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)


def ahead(asked: Asked) -> tuple[float, ...]:
    """How far each clock of the process is before the kernel's, to within some seconds."""
    before = kernel()
    shown = asked.ask()
    return tuple(round((mine - its) / 10) * 10 for mine, its in zip(shown, before, strict=True))


def test_each_clock_moves_alone(clocks: Callable[[], Clocks]) -> None:
    one, other = clocks(), clocks()
    one.move(real=-8 * DAY)
    with running(one, ASKS) as asked, running(other, ASKS) as another:
        assert ahead(asked) == (-8 * DAY, 0, 0)
        one.move(real=38 * DAY)
        assert ahead(asked) == (30 * DAY, 0, 0)
        one.move(monotonic=100, boot=200)
        assert ahead(asked) == (30 * DAY, 100, 200)
        assert ahead(another) == (0, 0, 0)


def test_a_process_stands_still_and_a_machine_sleeps(clocks: Callable[[], Clocks]) -> None:
    one = clocks()
    with running(one, ASKS) as asked:
        with one.stopped(asked.process.pid, 26 * 3_600):
            pass
        assert ahead(asked) == (26 * 3_600,) * 3
        with one.suspended(asked.process.pid, 200):
            pass
        assert ahead(asked) == (26 * 3_600 + 200, 26 * 3_600, 26 * 3_600 + 200)


def test_waiting_takes_as_long_as_before(clocks: Callable[[], Clocks]) -> None:
    one = clocks()
    with running(one, WAITS) as asked:
        for move in MOVES:
            one.move(**move)
            took = asked.ask()
            assert not {n: s for n, s in took.items() if s > 5}, move
            assert not {n: s for n, s in took.items() if s < 0.04}, move


def test_grpc_and_its_deadlines_work(clocks: Callable[[], Clocks]) -> None:
    pytest.importorskip("grpc")
    one = clocks()
    with running(one, GRPC) as asked:
        for move in MOVES:
            one.move(**move)
            answered, ended, took = asked.ask()
            assert (answered, ended) == ("x", "DEADLINE_EXCEEDED"), move
            assert 0.4 < took < 10, move


def test_sqlite_shows_the_moved_wall_clock(clocks: Callable[[], Clocks]) -> None:
    one = clocks()
    with running(one, SQLITE, ":memory:") as asked:
        one.move(real=30 * DAY)
        assert [round((shown - time.time()) / DAY) for shown in asked.ask()] == [30, 30]

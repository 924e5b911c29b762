"""Ports for the programs of tests, benchmarks and `make up-emulators`, and how such a program ends.

`python -m deploy.processes PATIENCE COMMAND` runs a command, and ends it with all that it started when standard input
ends. Whoever holds the other end of that pipe can't leave the command behind, however it ends itself.
"""

import contextlib
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

LOOK = 0.1

# Linux gives outgoing connections ports from 32768 on. A server that ends and comes back on its port needs one below:
# otherwise, a connection may have taken it meanwhile, even one from a client that looks for the server.
OURS: Final = range(10_000, 32_000)
TRIES: Final = 100


def free_port() -> int:
    """A port on which nothing listens. While this process lives, no other one gets it from here: two suites of tests
    may run at once.
    """
    for port in random.SystemRandom().sample(OURS, TRIES):  # tests may seed the other ones
        try:
            if sys.platform == "linux":
                _reserve(port)
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
    message = f"{TRIES} ports from {OURS.start} to {OURS.stop} are taken"
    raise OSError(message)


def _reserve(port: int) -> None:
    """Bind an abstract name, which the kernel frees when this process ends. `OSError` if another process has it."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0countersink port {port}")
    except OSError:
        name.close()
        raise
    name.detach()


def main(patience: float, command: Sequence[str]) -> int:
    """`patience`: seconds that the command has after SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the command would inherit
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as child:
        try:
            while child.poll() is None:
                readable, _, _ = select.select([sys.stdin], [], [], LOOK)
                if readable and not os.read(sys.stdin.fileno(), 1):
                    child.terminate()
                    child.wait(patience)
        except subprocess.TimeoutExpired:
            pass
        finally:
            kill(child.pid)
    return child.returncode


def kill(session: int) -> None:
    """Everything in it. gcloud makes groups of its own within it."""
    while members := _members(session):
        for one in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(LOOK)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # where there is no /proc
        os.killpg(session, signal.SIGKILL)


def _members(session: int) -> list[int]:
    """Those that are alive."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, of, *_ = stat.read_text().rpartition(")")[2].split()
            if int(of) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))

"""Starts `python -m countersink` by forking a process that has imported it already: imports are most of a start.

What is forked is a process like any other, with its own id, memory, files and signals. Each process that runs tests
has one fork server, which ends with it. What an interpreter reads only at its start needs a new interpreter: `can_fork`
says whether an environment has something of that kind.
"""

import asyncio
import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

_ROOT: Final = Path(__file__).parents[2]
_LARGEST: Final = 200_000
"""Bytes of a request: arguments, environment, folder."""
_READ_AT_START: Final = ("LD_", "LC_", "LANG", "PYTHON", "TEST_MUTATION", "TZ")
"""How the names of variables begin that are read only once."""
_IMPORTED: Final = (
    *(
        "countersink_server.cli.main",
        "countersink_server.serve.run",
        "countersink_server.serve.workers",
        "countersink.async_client",
    ),
    *("shared.pubsub.subscription", "shared.redis.overlay"),
)
"""These import nearly everything that commands import."""


class Forked:
    """A process that was forked: what tests use of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, status: int, stdout: asyncio.StreamReader | None = None) -> None:
        self.pid = pid
        self.stdout = stdout
        self._status = status
        self._code: int | None = None

    @property
    def returncode(self) -> int | None:
        if self._code is None:
            try:
                said = os.read(self._status, 16)
            except BlockingIOError:
                return None
            os.close(self._status)
            self._code = int(said or -signal.SIGKILL)
        return self._code

    async def wait(self) -> int:
        while (code := self.returncode) is None:
            await asyncio.sleep(0.005)
        return code

    def end_within(self, seconds: float) -> int:
        """Wait without an event loop. Kills the process and raises `TimeoutError` if it goes on for longer."""
        until = time.monotonic() + seconds
        while (code := self.returncode) is None:
            if time.monotonic() > until:
                self.kill()
                raise TimeoutError
            time.sleep(0.002)
        return code

    def send_signal(self, number: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a process that is forked would be the same as one with a new interpreter in this environment."""
    names = {name for name in (*environment, *os.environ) if name.startswith(_READ_AT_START)} - {"PYTHONPATH"}
    return all(environment.get(name) == os.environ.get(name) for name in names)


def fork(
    arguments: Sequence[str | bytes],
    environment: Mapping[str, str],
    *,
    stdout: int,
    stderr: int,
    cwd: Path | None = None,
) -> Forked:
    """`python -m countersink ARGUMENTS`."""
    server = _server()
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    request = json.dumps([*map(os.fsdecode, arguments)]), json.dumps(dict(environment)), str(cwd or Path.cwd())
    socket.send_fds(server, ["\0".join(request).encode(errors="surrogateescape")], [0, stdout, stderr, theirs])
    os.close(theirs)
    return Forked(int(server.recv(16)), ours)


async def fork_in_loop(arguments: Sequence[str], environment: Mapping[str, str], stderr: int) -> Forked:
    """The same, with a pipe for what it prints."""
    ours, theirs = os.pipe()
    process = fork(arguments, environment, stdout=theirs, stderr=stderr)
    os.close(theirs)
    process.stdout = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(process.stdout)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(ours, "rb", buffering=0))
    return process


@cache
def _server() -> socket.socket:
    """The socket of this process's server, which ends when the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        number = theirs.fileno()
        command = [sys.executable, "-m", "tests.processes.fork_server", str(number)]
        server = subprocess.Popen(command, cwd=_ROOT, pass_fds=[number])

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request. Returns the arguments in a process that was forked, and None in the server at its end."""
    ended, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal: the tests end what they started
    running: dict[int, int] = {}
    while True:
        readable = select.select((requests.fileno(), ended), (), ())[0]
        if ended in readable:
            os.read(ended, 4_096)
            for pid in list(running):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    with os.fdopen(running.pop(pid), "wb") as status_pipe:
                        status_pipe.write(b"%d" % os.waitstatus_to_exitcode(status))
        if requests.fileno() in readable:
            message, descriptors, _, _ = socket.recv_fds(requests, _LARGEST, 4)
            if not message:
                for pid in running:
                    os.kill(pid, signal.SIGKILL)
                return None
            pid = os.fork()
            if not pid:
                return _become(message, descriptors)
            running[pid] = descriptors.pop()
            for descriptor in descriptors:
                os.close(descriptor)
            requests.send(b"%d" % pid)


def _become(message: bytes, descriptors: list[int]) -> list[str]:
    """Make this process, which was forked, what was asked for. Returns its arguments."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, 1 << 16)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):  # their kinds differ
        old = getattr(sys, name)
        buffering = 1 if name == "stderr" else -1
        setattr(sys, name, os.fdopen(number, mode, buffering, old.encoding, old.errors, closefd=False))
    arguments, environment, cwd = message.decode(errors="surrogateescape").split("\0")
    os.environ.clear()
    os.environ.update(json.loads(environment))
    os.chdir(cwd)
    return list(json.loads(arguments))


def _end(code: str | int | None) -> NoReturn:
    """End as an interpreter does, but leave the modules as they are: to take them apart is most of a short process."""
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    for module in _IMPORTED:
        import_module(module)
    gc.freeze()
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        sys.argv = ["countersink", *asked]
        try:
            runpy.run_module("countersink", run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            _end(ended.code)
        _end(None)

"""Emulators of one's own, to be killed, frozen and started again on the same port: nobody else uses them."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from deploy.emulators import gcloud_environment
from deploy.processes import free_port
from tests.emulators.datastore_fixtures import LONGEST_START
from tests.needs import program

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 60.0
"""Seconds that one has after SIGTERM."""


class OwnEmulator:
    """A keeper runs it, and ends it when this process is gone."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        self.name = name
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self._arguments = arguments
        self._folder = folder
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        for tool in ("gcloud", "java"):
            program(tool)
        log = self._folder / f"{self.name}.log"
        command = ["gcloud", *self._arguments, *more, f"--host-port={self.host}"]
        environment = gcloud_environment(self._folder / f"{self.name}.gcloud")
        with log.open("ab") as output:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "deploy.processes", str(PATIENCE), *command],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        until = time.monotonic() + LONGEST_START
        while not self._answers():
            if self._keeper.poll() is not None or time.monotonic() > until:
                self.end()
                raise AssertionError(f"the emulator {self.name} does not start: {log.read_text()[-1_000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.host}/", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """The server itself, not the scripts that started it, which end then; until it is gone."""
        self._signal(number)
        assert self._keeper
        self._keeper.wait(PATIENCE)
        self.end()

    def end(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None and keeper.stdin is not None:
            keeper.stdin.close()
            keeper.wait(2 * PATIENCE)

    def _signal(self, number: int) -> None:
        servers = self._servers()
        assert servers, f"{self.name} does not run"
        for pid in servers:
            os.kill(pid, number)

    def _servers(self) -> list[int]:
        """Java, in the session that the keeper made for what it runs."""
        assert self._keeper
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                name, _, rest = stat.read_text().rpartition(")")
                _, _, _, session, *_ = rest.split()
                if name.endswith("(java") and _parent_of(int(session)) == self._keeper.pid:
                    found.append(int(stat.parent.name))
        return found


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

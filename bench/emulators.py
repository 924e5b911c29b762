"""The emulators of Google Cloud: started empty on free ports when a row first needs them, ended with the run."""

import fcntl
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from deploy.processes import free_port
from tests.emulators import keeper

PROJECT: Final = "countersink-bench"
FIRESTORE: Final = "firestore"
PUBSUB: Final = "pubsub"
COMMANDS: Final = {
    FIRESTORE: ("emulators", "firestore", "start", "--database-mode=datastore-mode"),
    PUBSUB: ("beta", "emulators", "pubsub", "start"),
}
_LONGEST_START: Final = 60.0
_TOOLS: Final = ("gcloud", "java")


class MissingError(Exception):
    """What a row needs is not on this machine: it is skipped."""


class Emulators:
    """Of one run. Its keepers end them whatever becomes of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hosts: dict[str, str] = {}
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def host(self, name: str) -> str:
        """Its host and port."""
        if name not in self._hosts:
            for tool in _TOOLS:
                if shutil.which(tool) is None:
                    raise MissingError(f"the emulators need {' and '.join(_TOOLS)}, and {tool} is missing")
            self._hosts[name] = self._start(name)
        return self._hosts[name]

    def _start(self, name: str) -> str:
        lock, log = self._folder / f"{name}.lock", self._folder / f"{name}.log"
        held = self._ends.enter_context(lock.open("a"))
        fcntl.flock(held, fcntl.LOCK_SH)
        host = f"127.0.0.1:{free_port()}"
        kept = [sys.executable, keeper.__file__, str(lock), str(self._folder / f"{name}.address")]
        environment = os.environ | {
            "CLOUDSDK_CONFIG": str(self._folder / f"{name}.gcloud"),
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*kept, "gcloud", *COMMANDS[name], f"--host-port={host}"],
                env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self._ends.callback(_end, process)
        until = time.monotonic() + _LONGEST_START
        while process.poll() is None and time.monotonic() < until:
            if _answers(host):
                return host
            time.sleep(0.1)
        raise MissingError(f"the emulator {name} does not start: {log.read_text()[-500:]}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait()


def _answers(host: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{host}/", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False

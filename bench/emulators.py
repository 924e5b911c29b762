"""The emulators of Google Cloud: started empty on free ports when a row first needs them, ended with the run."""

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from deploy import emulators
from deploy.emulators import INSTALL, Emulator

PROJECT: Final = "countersink-bench"
FIRESTORE: Final = "firestore"
PUBSUB: Final = "pubsub"
COMMANDS: Final = {FIRESTORE: emulators.FIRESTORE, PUBSUB: emulators.PUBSUB}


class MissingError(Exception):
    """What a row needs is not on this machine: it is skipped."""


class Emulators:
    """Of one run. They end with its process, whatever becomes of it."""

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
            for tool in INSTALL:
                if shutil.which(tool) is None:
                    raise MissingError(f"the emulators need {' and '.join(INSTALL)}, and {tool} is missing")
            emulator = Emulator(name, COMMANDS[name], self._folder)
            self._ends.callback(emulator.end)
            emulator.wait()
            self._hosts[name] = emulator.host
        return self._hosts[name]

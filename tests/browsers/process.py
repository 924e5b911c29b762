"""The process of a browser, which the tests of one worker share. Each test gets a private window of it."""

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from tests.browsers.tab import PATIENCE, Tab

OUTPUT: Final = "output.txt"
"""The file in the profile that has what the process prints."""


class Process(ABC):
    """A browser with a new profile in this folder."""

    def __init__(self, profile: Path) -> None:
        command = self.command(profile)
        with (profile / OUTPUT).open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        try:
            self.url = self._until_told(profile)
        except BaseException:
            self.close()
            raise

    def _until_told(self, profile: Path) -> str:
        last = time.monotonic() + PATIENCE
        while (found := self.address(profile)) is None:
            if time.monotonic() > last or self._process.poll() is not None:
                raise AssertionError(f"the browser does not start: {(profile / OUTPUT).read_text()}")
            time.sleep(0.05)
        return found

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @abstractmethod
    def command(self, profile: Path) -> list[str]: ...

    @abstractmethod
    def address(self, profile: Path) -> str | None:
        """The URL of the websocket for commands, or None before the process has told it."""

    @abstractmethod
    def tab(self) -> AbstractAsyncContextManager[Tab]:
        """A page in a window that shares nothing with others."""

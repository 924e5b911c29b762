"""The whole product on Google's emulators, for trying things: `make up-emulators`. Nothing of it outlives Ctrl-C."""

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from deploy.processes import free_port

PROJECT: Final = "countersink-local"
TOPIC: Final = "counts"
SUBSCRIPTION: Final = "counts-flushers"
FLUSHERS: Final = 2
WORKERS: Final = 2
LONGEST_START: Final = 90.0
LOOK: Final = 0.2
DRAIN: Final = 30.0
"""Seconds for a process of ours to end."""
END: Final = 3.0
"""Seconds for an emulator, which has nothing to save."""

PUBSUB: Final = ("beta", "emulators", "pubsub", "start", f"--project={PROJECT}")
FIRESTORE: Final = ("emulators", "firestore", "start", "--database-mode=datastore-mode")
REDIS: Final = "redis-server"
INSTALL: Final = {
    "gcloud": "https://cloud.google.com/sdk/docs/install, then: gcloud components install beta pubsub-emulator"
    " cloud-firestore-emulator",
    "java": "a Java runtime, version 21 or later (on Debian: apt-get install default-jre-headless)",
}


class Kept:
    """A command that ends with this process, at the latest."""

    def __init__(self, name: str, patience: float, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._patience = patience
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deploy.processes", str(patience), *command],
            cwd=Path(__file__).parents[1],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C in the terminal is for us alone: we decide in which order they end
        )

    def line(self) -> str:
        """Its first; it is ready then."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        return line or give_up(f"{self.name} did not start: see above")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(self._patience + END)
        except subprocess.TimeoutExpired:
            print(f"{self.name} did not end", file=sys.stderr)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Program(Kept, ABC):
    """One of others, which keeps nothing, and is ready when it answers."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        script = ["sh", "-c", f'exec {shlex.join(command)} >"$0" 2>&1', str(log)]
        super().__init__(name, END, script, environment)

    def wait(self) -> None:
        """Wait until it answers. If it does not, show what it wrote, and raise a `RuntimeError`."""
        until = time.monotonic() + LONGEST_START
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > until:
                print(self._log.read_text() if self._log.exists() else "", file=sys.stderr)
                raise RuntimeError(f"{self.name} did not start: see above")
            time.sleep(LOOK)

    @abstractmethod
    def _answers(self) -> bool: ...


class Emulator(Program):
    """Of Google's."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        self.host = f"127.0.0.1:{free_port()}"
        command = ["gcloud", *arguments, f"--host-port={self.host}"]
        super().__init__(f"the {name} emulator", command, folder / f"{name}.log", gcloud_environment(folder / name))

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.host}/", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class Redis(Program):
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = (REDIS, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder))
        super().__init__(REDIS, command, folder / "redis.log", os.environ)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


def gcloud_environment(config: Path) -> dict[str, str]:
    """For gcloud, which runs on a Python of its own and must not import what this one is told to."""
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return ours | {"CLOUDSDK_CONFIG": str(config), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}


def give_up(why: str) -> NoReturn:
    sys.exit(f"up-emulators: {why}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make up-emulators", description=__doc__, allow_abbrev=False)
    parser.add_argument("--port", type=int, default=8080, metavar="P", help="of the ingest; 0: a free one [8080]")
    options = parser.parse_args()
    for tool, where in INSTALL.items():
        if shutil.which(tool) is None:
            give_up(f"{tool} is missing: install {where}")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _told)
    with contextlib.ExitStack() as all_:
        all_.enter_context(_last_word())
        try:
            run(options, all_)
        except RuntimeError as error:
            give_up(str(error))


def run(options: argparse.Namespace, all_: contextlib.ExitStack) -> None:
    folder = Path(all_.enter_context(tempfile.TemporaryDirectory(prefix="countersink-")))
    all_.callback(_quiet)
    print("starting the emulators of Pub/Sub and Firestore", flush=True)
    pubsub = _kept(all_, Emulator("Pub-Sub", PUBSUB, folder))
    datastore = _kept(all_, Emulator("Firestore", FIRESTORE, folder))
    redis = _kept(all_, Redis(folder)) if shutil.which(REDIS) else None
    everything: list[Kept] = [pubsub, datastore]
    for emulator in (pubsub, datastore):
        emulator.wait()
    settings = {
        "PUBSUB_EMULATOR_HOST": pubsub.host,
        "DATASTORE_EMULATOR_HOST": datastore.host,
        "COUNTERSINK_BROKER": f"pubsub://{PROJECT}/{TOPIC}?subscription={SUBSCRIPTION}",
        "COUNTERSINK_STORE": f"datastore://{PROJECT}",
        "COUNTERSINK_SPOOL": str(folder / "spool.db"),
    }
    if redis is None:
        print(f"without {REDIS}, as it is not installed: reads are not exact")
    else:
        redis.wait()
        everything.append(redis)
        settings["COUNTERSINK_OVERLAY"] = f"redis://127.0.0.1:{redis.port}"
    environment = os.environ | settings
    command = (sys.executable, "-m", "countersink")
    if subprocess.run([*command, "provision"], env=environment, check=False).returncode:
        give_up("nothing could be provisioned: see above")
    flushers = [
        _kept(all_, Kept(f"flusher {number}", DRAIN, [*command, "flusher"], environment)) for number in range(FLUSHERS)
    ]
    arguments = ["ingest", "--port", str(options.port), "--workers", str(WORKERS)]
    ingest = _kept(all_, Kept("ingest", DRAIN, [*command, *arguments], environment))
    for process in (*flushers, ingest):
        print(line := process.line(), flush=True)
    print(_how(line.split()[5], settings), flush=True)
    everything += [*flushers, ingest]
    while not (gone := [one.name for one in everything if one.process.poll() is not None]):
        time.sleep(LOOK)
    give_up(f"{gone[0]} has ended by itself: see above")


T = TypeVar("T", bound=Kept)


def _kept(all_: contextlib.ExitStack, one: T) -> T:
    all_.callback(one.end)
    return one


def _how(url: str, settings: Mapping[str, str]) -> str:
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())
    pubsub = settings["PUBSUB_EMULATOR_HOST"]
    return f"""
Count something and read it:
  curl -X POST {url}/v1/counters/visits
  curl {url}/v1/counters/visits

Publish a message of your own on the topic:
  CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB=http://{pubsub}/ \\
    gcloud pubsub topics publish {TOPIC} --project={PROJECT} --message='{{"counter": "visits", "delta": 2}}'

For countersink doctor and the others, in another terminal:
  export {exports}

Ctrl-C drains it and ends everything; the emulators keep nothing."""


def _told(*_: object) -> NoReturn:
    _quiet()
    sys.exit(0)


def _quiet() -> None:
    """It ends already: nothing shall cut that short."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def _last_word() -> Iterator[None]:
    try:
        yield
    finally:
        print("everything has ended", flush=True)


if __name__ == "__main__":
    main()

"""The commands that run processes: up, ingest, flusher.

What they run is imported by them alone: nobody who asks for help or for a total should wait for it.
"""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from countersink.commands.arguments import whole
from countersink.commands.output import say
from countersink.process.logs import set_up
from shared.config.settings import Settings

HOST = "127.0.0.1"
PORT = 8080
_BROKER = "COUNTERSINK_BROKER"
_STORE = "COUNTERSINK_STORE"


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    up = commands.add_parser(
        "up", help="run ingest and a flusher in one process, on one SQLite file", allow_abbrev=False
    )
    _add_address(up)
    up.add_argument("--data", metavar="DIR", help=f"folder for the data [./.countersink, or {_BROKER}]")
    up.set_defaults(run=_up, refuse=up.error)

    ingest = commands.add_parser("ingest", help="run ingest alone", allow_abbrev=False)
    _add_address(ingest)
    count = whole(1, 1_000)
    ingest.add_argument("--workers", type=count, default=1, metavar="N", help="processes that share the port [1]")
    ingest.add_argument("--worker", nargs=2, type=int, help=argparse.SUPPRESS, metavar=("SOCKET", "PARENT"))
    ingest.set_defaults(run=_ingest)

    flusher = commands.add_parser("flusher", help="run a flusher alone; start as many as you like", allow_abbrev=False)
    flusher.add_argument("--port", type=whole(0, 65_535), metavar="P", help="port for /metrics and /healthz [none]")
    flusher.add_argument("--host", metavar="H", help=f"address for --port [{HOST}]")
    flusher.set_defaults(run=_flusher, refuse=flusher.error)


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=whole(0, 65_535),
        default=PORT,
        metavar="P",
        help=f"port to listen on; 0 takes a free one [{PORT}]",
    )
    parser.add_argument("--host", default=HOST, metavar="H", help=f"address to listen on [{HOST}]")


def _up(options: argparse.Namespace) -> None:
    environment = dict(os.environ)
    if options.data is not None:
        for variable in (_BROKER, _STORE):
            if variable in environment:
                options.refuse(f"--data and {variable} both say where the data is: say one of them")
        try:
            environment[_BROKER] = url_of_folder(options.data)
        except UnicodeEncodeError:
            options.refuse("argument --data: the folder's name is not UTF-8")
    with _until_told(environment) as settings:
        from countersink.process import run  # noqa: PLC0415 (see above)
        from countersink.process.sockets import listen  # noqa: PLC0415

        run.run(run.up(settings, listen(options.host, options.port), say))


def _ingest(options: argparse.Namespace) -> None:
    with _until_told(os.environ) as settings:
        from countersink.process import run, workers  # noqa: PLC0415 (see above)
        from countersink.process.sockets import inherited, listen  # noqa: PLC0415

        if options.worker is not None:
            number, parent = options.worker
            run.run(run.ingest(settings, inherited(number), say, parent=parent))
            return
        sock = listen(options.host, options.port)
        if options.workers == 1:
            run.run(run.ingest(settings, sock, say))
        else:
            run.run(workers.supervise(settings, sock, options.workers, say))


def _flusher(options: argparse.Namespace) -> None:
    if options.host is not None and options.port is None:
        options.refuse("--host needs --port")
    with _until_told(os.environ) as settings:
        from countersink.process import run  # noqa: PLC0415 (see above)
        from countersink.process.sockets import listen  # noqa: PLC0415

        sock = listen(options.host or HOST, options.port) if options.port is not None else None
        run.run(run.flusher(settings, sock, say))


@contextlib.contextmanager
def _until_told(environment: Mapping[str, str]) -> Iterator[Settings]:
    """The settings. SIGTERM and Ctrl-C end the process with 0 also before the start and after the drain."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.suppress(KeyboardInterrupt):
        settings = Settings.read(environment)
        set_up(settings.log_level)
        yield settings
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def url_of_folder(folder: str) -> str:
    """The URL of the data file in the folder: absolute, and safe for all characters in the path."""
    file = Path(folder).absolute() / "countersink.db"
    return f"sqlite:///{quote(str(file))}"

"""The commands that run processes: up, ingest, flusher."""

import argparse
import errno
import logging
import os
import socket
from typing import Any

from countersink import processes, workers
from ingest.server import listen
from shared.errors import SettingsError
from shared.settings import Settings

HOST = "127.0.0.1"
PORT = 8080
_BROKER = "COUNTERSINK_BROKER"


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    up = commands.add_parser("up", help="ingest and flusher in one process, embedded")
    _add_address(up)
    up.add_argument("--data", metavar="DIR", help=f"folder of the data [./.countersink; or {_BROKER}]")
    up.set_defaults(run=_up)

    ingest = commands.add_parser("ingest", help="ingest alone, by settings")
    _add_address(ingest)
    ingest.add_argument("--workers", type=_count, default=1, metavar="N", help="processes that share the port [1]")
    ingest.add_argument("--worker", nargs=2, type=int, help=argparse.SUPPRESS, metavar=("SOCKET", "PARENT"))
    ingest.set_defaults(run=_ingest)

    flusher = commands.add_parser("flusher", help="a flusher alone, by settings; start as many as you like")
    flusher.set_defaults(run=_flusher)


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=_port, default=PORT, help=f"0 takes a free one [{PORT}]")
    parser.add_argument("--host", default=HOST, help=f"address to listen on [{HOST}]")


def _up(options: argparse.Namespace) -> None:
    environment = dict(os.environ)
    if options.data is not None:
        if _BROKER in environment:
            raise SettingsError(f"--data and {_BROKER} both say where the data is: say one of them")
        environment[_BROKER] = f"sqlite:///{options.data}/countersink.db"
    settings = _prepare(environment)
    processes.run(processes.up(settings, _listen(options.host, options.port), _say))


def _ingest(options: argparse.Namespace) -> None:
    settings = _prepare(os.environ)
    if options.worker is not None:
        number, parent = options.worker
        sock = socket.socket(fileno=number)
        processes.run(processes.ingest(settings, sock, _say, parent=parent))
        return
    sock = _listen(options.host, options.port)
    if options.workers == 1:
        processes.run(processes.ingest(settings, sock, _say))
    else:
        processes.run(workers.supervise(sock, options.workers, settings.drain_timeout, _say))


def _flusher(_: argparse.Namespace) -> None:
    processes.run(processes.flusher(_prepare(os.environ), _say))


def _prepare(environment: "os._Environ[str] | dict[str, str]") -> Settings:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return Settings.read(environment)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SettingsError(f"port {port} of {host} is taken: choose another with --port") from error
        raise SettingsError(f"can't listen on {host}, port {port}: {error.strerror or error}") from error


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 (a start-up line is for standard output)


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65_535:  # noqa: PLR2004 (what a port can be)
        raise argparse.ArgumentTypeError("must be from 0 to 65535")
    return port


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1_000:  # noqa: PLR2004 (more is a mistake)
        raise argparse.ArgumentTypeError("must be from 1 to 1000")
    return number

"""The commands that run processes: up, ingest, flusher.

What they run is imported by them alone: nobody who asks for help or for a total should wait for it.
"""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from countersink_server.cli.arguments import Commands, Refused, command, folder, whole
from countersink_server.cli.output import say
from countersink_server.cli.target import BROKER, add_neither, environment_of
from countersink_server.serve.logs import set_up
from shared.config.settings import Settings
from shared.model.errors import SettingsError

if TYPE_CHECKING:
    from countersink_server.serve.sockets import Address, Sockets

HOST = "127.0.0.1"
PORT = 8080
_NO_URL = "this command runs a service: --host and --port say where it listens"
_BY_SETTINGS = f"the settings say what it uses: set {BROKER}, or run countersink up with --data"


def add_commands(commands: Commands) -> None:
    up = command(commands, "up", _up)
    _add_address(up)
    _add_statsd(up)
    up.add_argument("--data", type=folder, metavar="DIR", help=f"folder for the data [./.countersink, or {BROKER}]")
    up.add_argument("--url", action=Refused, instead=_NO_URL)

    ingest = command(commands, "ingest", _ingest)
    _add_address(ingest)
    count = whole(1, 1_000)
    ingest.add_argument("--workers", type=count, default=1, metavar="N", help="processes that share the port [1]")
    ingest.add_argument("--worker", nargs="+", type=int, help=argparse.SUPPRESS, metavar="DESCRIPTOR")
    ingest.add_argument("--worker-metrics", nargs="+", type=int, help=argparse.SUPPRESS, metavar="DESCRIPTOR")
    ingest.add_argument("--worker-statsd", nargs=2, type=int, help=argparse.SUPPRESS, metavar="DESCRIPTOR")
    _add_statsd(ingest)
    add_neither(ingest, _BY_SETTINGS)

    flusher = command(commands, "flusher", _flusher)
    flusher.add_argument("--port", type=whole(0, 65_535), metavar="P", help="port for /metrics and /healthz [none]")
    flusher.add_argument("--host", metavar="H", help=f"address for --port [{HOST}], or unix:PATH")
    _add_access(flusher, "/metrics")
    add_neither(flusher, _BY_SETTINGS)


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=whole(0, 65_535),
        default=PORT,
        metavar="P",
        help=f"port to listen on; 0 takes a free one [{PORT}]",
    )
    parser.add_argument(
        "--host", default=HOST, metavar="H", help=f"address to listen on, or unix:PATH for a Unix socket [{HOST}]"
    )
    _add_access(parser, "admin routes and /metrics")


def _add_access(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--admin-port", type=whole(0, 65_535), metavar="P", help=f"serve {what} on this port alone [--port]"
    )
    parser.add_argument("--admin-host", metavar="H", help=f"address for --admin-port [{HOST}], or unix:PATH")
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="without keys (COUNTERSINK_KEYS_FILE), let other machines connect: anyone who can may do everything",
    )


def _add_statsd(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--statsd",
        "--statsd-port",
        dest="statsd_port",
        type=whole(0, 65_535),
        metavar="P",
        help="port for StatsD lines, over UDP and TCP [none]",
    )
    parser.add_argument("--statsd-host", metavar="H", help=f"address for --statsd [{HOST}]")


def _address(options: argparse.Namespace, name: str = "") -> "Address | None":
    """Where to listen, by the options that begin with this name. None if they say nothing."""
    from countersink_server.serve.sockets import PORTS, PREFIX, Address  # noqa: PLC0415

    host, port = (getattr(options, f"{name}{what}".replace("-", "_")) for what in ("host", "port"))
    if port is None and host is not None and not host.startswith(PREFIX):
        options.refuse(f"--{name}host needs {PORTS[name]}")
    if host is None and port is None:
        return None
    return Address(HOST if host is None else host, port or 0, name)


@contextlib.contextmanager
def _listening(options: argparse.Namespace, settings: Settings) -> "Iterator[Sockets]":
    from countersink_server.serve.sockets import listening  # noqa: PLC0415 (see above)

    public, admin = _address(options), _address(options, "admin-")
    if public is not None and admin is not None and public.port and public[:2] == admin[:2]:
        options.refuse("--port and --admin-port must differ")
    statsd = _address(options, "statsd-") if hasattr(options, "statsd_port") else None
    if statsd is not None:
        if statsd.host.startswith("unix:"):
            options.refuse("--statsd-host must be an address: StatsD lines come over UDP and TCP")
        if settings.keys_file and not settings.statsd_key:
            raise SettingsError(
                "--statsd: StatsD lines have no credentials, and this service has keys: set COUNTERSINK_STATSD_KEY to"
                " the key under which they count"
            )
    with listening(public, admin, statsd, keys=bool(settings.keys_file), insecure=options.insecure) as sockets:
        yield sockets


def _up(options: argparse.Namespace) -> None:
    settings = _settings(environment_of(options))
    from countersink_server.serve import run  # noqa: PLC0415 (see above)

    with _until_told(), _listening(options, settings) as sockets:
        run.run(run.up(settings, sockets, say))


def _ingest(options: argparse.Namespace) -> None:
    settings = _settings(os.environ)
    from countersink_server.serve import run, workers  # noqa: PLC0415 (see above)
    from countersink_server.serve.sockets import Sockets, inherited  # noqa: PLC0415
    from ingest.statsd.statsd import StatsdSockets  # noqa: PLC0415
    from shared.runtime import metrics  # noqa: PLC0415

    with _until_told():
        if options.worker is not None:
            number, parent, *admins = options.worker
            public, admin = inherited(number), inherited(admins[0]) if admins else None
            statsd = StatsdSockets(*map(inherited, options.worker_statsd)) if options.worker_statsd else None
            metrics.BOARD.join(options.worker_metrics[0], options.worker_metrics[1:])
            run.run(run.ingest(settings, Sockets(public, admin, statsd), say, parent=parent))
            return
        with _listening(options, settings) as sockets:
            if options.workers == 1:
                run.run(run.ingest(settings, sockets, say))
            else:
                run.run(workers.supervise(settings, sockets, options.workers, say))


def _flusher(options: argparse.Namespace) -> None:
    _address(options)  # wrong usage is reported before a wrong setting
    settings = _settings(os.environ)
    from countersink_server.serve import run  # noqa: PLC0415 (see above)

    with _until_told(), _listening(options, settings) as sockets:
        run.run(run.flusher(settings, sockets, say))


@contextlib.contextmanager
def _until_told() -> Iterator[None]:
    """SIGTERM and Ctrl-C end the process with 0 also before the start and after the drain. Enter it when all is
    imported: until then, `countersink_server.__main__` does the same.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        yield
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _settings(environment: Mapping[str, str]) -> Settings:
    settings = Settings.read(environment)
    set_up(settings)
    return settings

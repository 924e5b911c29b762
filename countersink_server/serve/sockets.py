"""Opens the sockets that a process listens on, Unix sockets too, or says why it can't."""

import errno
import logging
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from ingest.access.callers import is_loopback
from ingest.statsd.statsd import StatsdSockets
from shared.http.server import listen as bound
from shared.model.errors import SettingsError, why_not_made

# Makes Unix sockets to listen on. Only the user and the group of the process may connect to their files.


PREFIX: Final = "unix:"
_OTHERS: Final = 0o117
"""What others and executing would add to 0660."""


def listen_at(path: Path, backlog: int) -> socket.socket:
    """A socket that listens at this path. The file of a process that was killed is replaced.

    Raises `SettingsError` if another process listens there, or if the file is no socket.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        umask = os.umask(_OTHERS)
        try:
            sock.bind(str(path))
        finally:
            os.umask(umask)
        sock.listen(backlog)
    except OSError as error:  # also of a path that is too long, which has no number
        sock.close()
        raise SettingsError(f"can't listen on {PREFIX}{path}: {why_not_made(error, path.parent)}") from error
    except SettingsError:
        sock.close()
        raise
    return sock


def remove(path: Path, file: os.stat_result) -> None:
    """Remove the file of a socket that has been closed, unless another process has replaced it."""
    with suppress(OSError):
        there = path.lstat()
        if (there.st_dev, there.st_ino) == (file.st_dev, file.st_ino):
            path.unlink()


def _remove_stale(path: Path) -> None:
    try:
        there = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(there.st_mode):
        raise SettingsError(f"{path} exists and is not a socket: choose another path, or move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # if its queue is full, the other process is alive, too
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            remove(path, there)
            return
        except BlockingIOError:
            pass
    raise SettingsError(f"another process listens on {PREFIX}{path}: stop it, or choose another path")


_log = logging.getLogger(__name__)

BACKLOG: Final = 1024
RECEIVED: Final = 4_194_304
"""Bytes of UDP packets that the kernel may keep until they are read. On Linux, net.core.rmem_max may allow less."""
STATSD: Final = "statsd-"
"""How the options begin that say where StatsD lines come."""
PORTS: Final = {"": "--port", "admin-": "--admin-port", STATSD: "--statsd"}
"""The options that name a port, by how the options begin."""
_NO_KEYS: Final = (
    "--{}host {}: anyone who can connect could {} all counters, because there are no keys: set"
    " COUNTERSINK_KEYS_FILE, use 127.0.0.1, or accept that with --insecure"
)


class Address(NamedTuple):
    """Where to listen. `option`: how the options begin that say so, as `admin-` in --admin-host."""

    host: str
    port: int
    option: str = ""


class Sockets(NamedTuple):
    public: socket.socket | None
    admin: socket.socket | None = None
    """The listener for admin routes and metrics, if they have one of their own."""
    statsd: StatsdSockets | None = None
    """The sockets for StatsD lines."""

    def described(self) -> str:
        found = [url_of(self.public)] if self.public is not None else []
        if self.admin is not None:
            found.append(f"admin on {url_of(self.admin)}")
        if self.statsd is not None:
            found.append(f"StatsD on {url_of(self.statsd.udp).removeprefix('http://')}")
        return ", ".join(found)


@contextmanager
def listening(
    public: Address | None,
    admin: Address | None = None,
    statsd: Address | None = None,
    *,
    keys: bool,
    insecure: bool = False,
) -> Iterator[Sockets]:
    """Listen inside it. Without `keys`, only this machine can connect, unless `insecure`."""
    with ExitStack() as stack:
        opened = [stack.enter_context(_listening(one, keys=keys, insecure=insecure)) for one in (public, admin, statsd)]
        tcp = opened.pop()
        if tcp is None or statsd is None:
            yield Sockets(opened[0], opened[1])
        else:
            udp = stack.enter_context(_packets(tcp, statsd))
            yield Sockets(opened[0], opened[1], StatsdSockets(udp, tcp))


@contextmanager
def _listening(address: Address | None, *, keys: bool, insecure: bool) -> Iterator[socket.socket | None]:
    if address is None:
        yield None
        return
    if address.host.startswith(PREFIX):
        path = Path(address.host.removeprefix(PREFIX)).absolute()
        with listen_at(path, BACKLOG) as sock:
            file = path.lstat()
            try:
                yield sock
            finally:
                remove(path, file)
        return
    with listen(address) as sock:
        may = "add to" if address.option == STATSD else "change and delete"
        if not keys and not is_loopback(sock.getsockname()[0]):
            if not insecure:
                raise SettingsError(_NO_KEYS.format(address.option, address.host or "''", may))
            _log.warning("--insecure: anyone who can connect to %s can %s all counters", url_of(sock), may)
        yield sock


def listen(address: Address) -> socket.socket:
    """A bound socket; port 0 takes a free one."""
    host, port, option = address
    try:
        return bound(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} of {host} is taken: choose another with {_port(option)}"
        elif error.errno == errno.EACCES:
            why = f"port {port} needs root: choose 1024 or higher with {_port(option)}"
        else:
            why = (
                f"can't listen on {host}, port {port}: {error.strerror or error}. Is --{option}host an address of this"
                " machine?"
            )
        raise SettingsError(why) from error
    except UnicodeError as error:
        raise SettingsError(f"--{option}host {host!r} is not a host name") from error


def _port(option: str) -> str:
    """The option that names another port, as it has to be given to whatever started this process."""
    name = PORTS[option]
    return f"ARGS='{name} …' behind make, or {name}" if "MAKELEVEL" in os.environ else name


def _packets(tcp: socket.socket, address: Address) -> socket.socket:
    udp = socket.socket(tcp.family, socket.SOCK_DGRAM)
    try:
        if tcp.family == socket.AF_INET6:
            both = tcp.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, both)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)
        udp.bind(tcp.getsockname())
    except OSError as error:
        udp.close()
        raise SettingsError(
            f"can't read UDP packets at port {tcp.getsockname()[1]} of {address.host} ({error.strerror or error}):"
            f" choose another with {_port(address.option)}"
        ) from error
    return udp


def inherited(number: int) -> socket.socket:
    """The parent's socket, by its file descriptor."""
    try:
        return socket.socket(fileno=number)
    except OSError as error:
        raise SettingsError(f"file descriptor {number} is not a socket: use --workers") from error


def url_of(sock: socket.socket) -> str:
    if sock.family == socket.AF_UNIX:
        return f"{PREFIX}{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

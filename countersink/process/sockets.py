"""Opens the socket that a process listens on, or says why it can't."""

import errno
import socket

from ingest.server import server
from shared.model.errors import SettingsError


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one."""
    try:
        return server.listen(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} of {host} is taken: choose another with --port"
        elif error.errno == errno.EACCES:
            why = f"port {port} needs root: choose one from 1024 with --port"
        else:
            why = (
                f"can't listen on {host}, port {port}: {error.strerror or error}. Is --host an address of this machine?"
            )
        raise SettingsError(why) from error
    except UnicodeError as error:
        raise SettingsError(f"--host {host!r} is not a host name") from error


def inherited(number: int) -> socket.socket:
    """The parent's socket, by its file descriptor."""
    try:
        return socket.socket(fileno=number)
    except OSError as error:
        raise SettingsError(f"file descriptor {number} is not a socket: use --workers") from error


def url_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

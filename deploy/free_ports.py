"""Ports on which the programs of tests, benchmarks and `make up-emulators` listen."""

import random
import socket
import sys
from typing import Final

# Linux gives outgoing connections ports from 32768 on. A server that ends and comes back on its port needs one below:
# otherwise, a connection may have taken it meanwhile, even one from a client that looks for the server.
OURS: Final = range(10_000, 32_000)
TRIES: Final = 100


def free_port() -> int:
    """A port on which nothing listens. While this process lives, no other one gets it from here: two suites of tests
    may run at once.
    """
    for port in random.SystemRandom().sample(OURS, TRIES):  # tests may seed the other ones
        try:
            if sys.platform == "linux":
                _reserve(port)
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
    message = f"{TRIES} ports from {OURS.start} to {OURS.stop} are taken"
    raise OSError(message)


def _reserve(port: int) -> None:
    """Bind an abstract name, which the kernel frees when this process ends. `OSError` if another process has it."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0countersink port {port}")
    except OSError:
        name.close()
        raise
    name.detach()

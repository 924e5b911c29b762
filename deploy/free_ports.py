"""Ports on which the programs of tests, benchmarks and `make up-emulators` listen."""

import random
import socket
from typing import Final

# Linux gives outgoing connections ports from 32768 on. A server that ends and comes back on its port needs one below:
# otherwise, a connection may have taken it meanwhile, even one from a client that looks for the server.
OURS: Final = range(10_000, 32_000)
TRIES: Final = 100


def free_port() -> int:
    for port in random.SystemRandom().sample(OURS, TRIES):  # tests may seed the other ones
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    message = f"{TRIES} ports from {OURS.start} to {OURS.stop} are taken"
    raise OSError(message)

"""The command `countersink`, which a signal may also end while it imports its parts: a service exits with 0."""

import os
import signal
import sys
from typing import Final

SERVICES: Final = (["up"], ["ingest"], ["flusher"])


def main() -> None:
    if sys.argv[1:2] in SERVICES:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))  # nothing is open; an exception may crash an import
    try:
        from countersink_server.cli.main import main as run  # noqa: PLC0415 (this takes most of the time of a start)
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()

"""The command `countersink`. A signal may end it at any time, also while it imports its parts: it leaves no temporary
file behind, and a service exits with 0.
"""

import os
import signal
import sys
from typing import Final

SERVICES: Final = (["up"], ["ingest"], ["flusher"])


def main() -> None:
    if sys.argv[1:2] in SERVICES:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))  # nothing is open; an exception may crash an import
    else:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # under nohup, SIGHUP is ignored
                signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        from countersink_server.cli.main import main as run  # noqa: PLC0415 (this takes most of the time of a start)
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()

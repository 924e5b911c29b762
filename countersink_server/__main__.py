"""The command `countersink`. A signal may end it at any time, also while it imports its parts: it leaves no temporary
file behind, and a service exits with 0.
"""

import os
import signal
import sys
from types import FrameType
from typing import Final

SERVICES: Final = (["up"], ["ingest"], ["flusher"])


def main() -> None:
    ended_by: int = signal.SIGINT

    def interrupt(number: int, frame: FrameType | None) -> None:
        """End as Ctrl-C does: asyncio cancels what runs, and the command says how to go on."""
        nonlocal ended_by
        ended_by = number
        handler = signal.getsignal(signal.SIGINT)
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    if sys.argv[1:2] in SERVICES:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))  # nothing is open; an exception may crash an import
    else:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs in the background
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            signal.signal(signal.SIGINT, signal.default_int_handler)  # instead of which asyncio sets its own
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # under nohup, SIGHUP is ignored
                signal.signal(number, interrupt)
    try:
        from countersink_server.cli.main import main as run  # noqa: PLC0415 (this takes most of the time of a start)

        run()
    except KeyboardInterrupt:
        sys.exit(128 + ended_by)


if __name__ == "__main__":
    main()

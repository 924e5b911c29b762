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

    _open_standard_streams()
    if sys.argv[1:2] in SERVICES:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))  # nothing is open; an exception may crash an import
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # under nohup, it is ignored
            signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    else:
        if sys.stdout is None:
            sys.exit("countersink: standard output is closed: send it to a file, or to /dev/null")
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs in the background
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            signal.signal(signal.SIGINT, signal.default_int_handler)  # instead of which asyncio sets its own
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, interrupt)
    try:
        from countersink_server.cli.main import main as run  # noqa: PLC0415 (this takes most of the time of a start)

        run()
    except KeyboardInterrupt:
        sys.exit(128 + ended_by)


def _open_standard_streams() -> None:
    """Where one is closed, the next file or socket would take its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


if __name__ == "__main__":
    main()

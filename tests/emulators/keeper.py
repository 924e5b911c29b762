"""A process that keeps an emulator for all workers of a test run, and ends it when the last one is gone.

Workers hold a shared lock on a file. The kernel lets go of it whatever happens to them, so that nothing is left over
even of a run that was killed.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LONGEST_END = 10.0


def main(lock: Path, address: Path, command: list[str]) -> int:
    """Run the command until nobody holds the lock or it ends by itself."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    emulator = subprocess.Popen(command, start_new_session=True)
    with lock.open("a") as file:
        try:
            while emulator.poll() is None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(0.2)
                else:
                    return 0
            return 1
        finally:  # with the lock: who comes now waits, and then starts another one
            address.unlink(missing_ok=True)
            end(emulator)


def end(emulator: subprocess.Popen[bytes]) -> None:
    """The whole group: gcloud is a script that starts a script that starts Java."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(emulator.pid, sign)
            emulator.wait(LONGEST_END)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))

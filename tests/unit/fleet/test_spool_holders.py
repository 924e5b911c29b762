"""Locks tell which processes hold a spool file, and end with the processes."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shared.fleet.membership import SpoolHolders

HOLD = """
import sys
from pathlib import Path
from shared.fleet.membership import SpoolHolders
holders = SpoolHolders(Path(sys.argv[1]), "spool")
holders.hold(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


def holder(folder: Path, member: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), member], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_process_is_alive_until_it_has_ended_however_it_does(tmp_path: Path) -> None:
    killed, stands = holder(tmp_path, "killed"), holder(tmp_path, "stands")
    own = SpoolHolders(tmp_path, "spool")
    own.hold("own")
    assert own.alive() == {"own", "killed", "stands"}
    os.kill(stands.pid, signal.SIGSTOP)  # and may go on
    kill(killed)
    assert own.alive() == {"own", "stands"}
    kill(stands)
    assert own.alive() == {"own"}
    assert len([*tmp_path.iterdir()]) == 1, "locks of those that are gone are removed"


def test_a_member_of_several_processes_lives_as_long_as_one_of_them(tmp_path: Path) -> None:
    first, second = holder(tmp_path, "shared"), holder(tmp_path, "shared")
    own = SpoolHolders(tmp_path, "spool")
    kill(first)
    assert own.alive() == {"shared"}
    kill(second)
    assert own.alive() == set()


def test_holders_of_another_file_in_the_folder_do_not_count(tmp_path: Path) -> None:
    other = SpoolHolders(tmp_path, "spool.orders")
    other.hold("other")
    assert SpoolHolders(tmp_path, "spool").alive() == set()
    other.close()
    SpoolHolders(tmp_path, "spool").alive()
    assert len([*tmp_path.iterdir()]) == 1


def test_a_lock_that_may_not_be_read_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is another user's."""
    one = SpoolHolders(tmp_path, "spool")
    one.hold("one")
    one.close()

    def refuse(*_: object) -> int:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        assert SpoolHolders(tmp_path, "spool").alive() == {"one"}
    assert SpoolHolders(tmp_path, "spool").alive() == set()


def test_nobody_else_can_open_a_lock_and_so_keep_a_process_alive(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        holders = SpoolHolders(tmp_path, "spool")
        holders.hold("a")
    finally:
        os.umask(before)
    (lock,) = tmp_path.iterdir()
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    holders.close()

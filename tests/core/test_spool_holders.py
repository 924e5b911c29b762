"""Who holds a spool file: told by locks, which end with their processes."""

import os
import subprocess
import sys
from pathlib import Path

from shared.spool_holders import SpoolHolders

HOLD = """
import sys
from pathlib import Path
from shared.spool_holders import SpoolHolders
holders = SpoolHolders(Path(sys.argv[1]))
holders.hold(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


def holder(spool: Path, member: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(spool), member], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_process_is_dead_when_it_has_ended_however_it_did(tmp_path: Path) -> None:
    spool = tmp_path / "spool[1].db"
    killed, stands = holder(spool, "killed"), holder(spool, "stands")
    own = SpoolHolders(spool)
    own.hold("own")
    assert own.dead() == set()
    os.kill(stands.pid, 19)  # it stands still, and may go on
    killed.kill()
    killed.communicate()
    assert own.dead() == {"killed"}
    own.forget({"killed"})
    assert own.dead() == set()
    stands.kill()
    stands.communicate()
    assert own.dead() == {"stands"}


def test_a_member_of_several_processes_lives_as_long_as_one_of_them(tmp_path: Path) -> None:
    spool = tmp_path / "spool.db"
    first, second = holder(spool, "shared"), holder(spool, "shared")
    first.kill()
    first.communicate()
    own = SpoolHolders(spool)
    own.hold("own")
    assert own.dead() == set()
    second.kill()
    second.communicate()
    assert own.dead() == {"shared"}
    own.close()
    assert SpoolHolders(spool).dead() == {"shared", "own"}

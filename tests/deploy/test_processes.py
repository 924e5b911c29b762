"""Two processes that look for a free port at once get two."""

import subprocess
import sys

import pytest

from deploy import processes

ASK = "from deploy import processes; processes.OURS, processes.TRIES = range({0}, {1}), 1; processes.free_port()"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names that end with a process")
def test_a_port_is_given_once_though_nothing_listens_there_yet() -> None:
    port = processes.free_port()
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(port, port + 1)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "are taken" in done.stderr

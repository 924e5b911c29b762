"""The unit for systemd: its command is one of ours, and the process has no more rights than it needs."""

import re
import shlex
from typing import Final

from countersink_server.cli.main import parser_of_all
from shared.config.settings import Settings
from tests.meta.checkout import ROOT

LINES: Final = [
    line for line in (ROOT / "deploy" / "countersink.service").read_text().splitlines() if re.match(r"\w+=", line)
]
HARDENED: Final = {
    *("CapabilityBoundingSet=", "DynamicUser=yes", "IPAddressDeny=any", "LockPersonality=yes"),
    *("MemoryDenyWriteExecute=yes", "NoNewPrivileges=yes", "PrivateDevices=yes", "PrivateTmp=yes", "PrivateUsers=yes"),
    *("ProcSubset=pid", "ProtectClock=yes", "ProtectControlGroups=yes", "ProtectHome=yes", "ProtectHostname=yes"),
    *("ProtectKernelLogs=yes", "ProtectKernelModules=yes", "ProtectKernelTunables=yes", "ProtectProc=invisible"),
    *("ProtectSystem=strict", "RestrictNamespaces=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes"),
    *("SystemCallArchitectures=native", "SystemCallFilter=@system-service", "UMask=0077"),
}


def test_its_command_is_one_of_ours() -> None:
    (command,) = [line.partition("=")[2] for line in LINES if line.startswith("ExecStart=")]
    program, *arguments = shlex.split(command)
    assert program.endswith("/.venv/bin/countersink")
    assert parser_of_all().parse_args(arguments).host == "127.0.0.1"


def test_the_process_has_no_more_rights_than_it_needs() -> None:
    """`systemd-analyze security` says 1.1 of it; without these lines it said 8.3."""
    assert set(LINES) >= HARDENED


def test_it_may_open_enough_files_for_its_connections() -> None:
    """The filter of system calls forbids the process to raise its limit by itself."""
    (limit,) = [int(line.partition("=")[2]) for line in LINES if line.startswith("LimitNOFILE=")]
    assert limit > Settings().max_connections + 1_000

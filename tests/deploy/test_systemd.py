"""systemd reads the unit without a complaint, and finds it well confined."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from countersink_server.cli.main import parser_of_all
from tests.meta.checkout import ROOT
from tests.needs import missing, program

UNIT: Final = ROOT / "deploy" / "countersink.service"
BACKUP: Final = UNIT.with_name("countersink-backup.service")
TIMER: Final = BACKUP.with_suffix(".timer")
MOST_EXPOSED: Final = 3.0


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [program("systemd-analyze"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that this machine has."""
    file = tmp_path / UNIT.name
    file.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/sleep", UNIT.read_text()))
    return file


def test_systemd_understands_each_line(unit: Path) -> None:
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("LimitNOFILE=16384", "LimitNOFILES=16384"))
    assert "LimitNOFILES" in analyze("verify", str(unit)).stderr


def test_systemd_understands_what_can_be_uncommented(unit: Path) -> None:
    text, number = re.subn(r"(?m)^# (?=\w+=)", "", unit.read_text())
    assert number > 3
    unit.write_text(text)
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stderr) == (0, "")


def exposure(unit: Path) -> float:
    said = analyze("security", "--offline=true", "--no-pager", str(unit)).stdout
    (found,) = re.findall(r"exposure level for \S+: ([\d.]+)", said)
    return float(found)


def test_the_process_is_confined(unit: Path) -> None:
    assert exposure(unit) < MOST_EXPOSED
    unit.write_text("[Service]\nExecStart=/bin/sleep 1\n")
    assert exposure(unit) > MOST_EXPOSED


def test_a_unit_that_cannot_start_is_not_tried_for_ever() -> None:
    lines = UNIT.read_text().splitlines()
    assert "StartLimitIntervalSec=60" in lines
    assert "StartLimitBurst=10" in lines


def test_a_backup_is_made_each_night_by_the_user_of_the_data(tmp_path: Path) -> None:
    text = BACKUP.read_text().replace("/opt/countersink/.venv/bin/countersink", "/bin/true")
    for file, lines in ((BACKUP, text), (TIMER, TIMER.read_text())):
        (tmp_path / file.name).write_text(lines)
    done = analyze("verify", str(tmp_path / BACKUP.name), str(tmp_path / TIMER.name))
    assert (done.returncode, done.stderr) == (0, "")
    assert "OnCalendar=*-*-* 03:30" in TIMER.read_text()
    for line in ("DynamicUser=yes", "Environment=XDG_STATE_HOME=/var/cache/countersink", "CacheDirectory=countersink"):
        assert line in text
        assert line in UNIT.read_text()
    assert f"User={UNIT.stem}" in text  # what systemd calls the dynamic user of the other unit
    (command,) = re.findall(r"ExecStart=/bin/sh -c '\S+ (.*)'", BACKUP.read_text())
    command = re.sub(r"\$\(.*?\)", "now", command)
    assert parser_of_all().parse_args(command.split()).data == "/var/lib/countersink"
    assert exposure(tmp_path / BACKUP.name) < MOST_EXPOSED + 1


def test_a_backup_fails_before_it_fills_the_disk(tmp_path: Path) -> None:
    (command,) = re.findall(r"ExecStartPre=/bin/sh -c '(.*)'", BACKUP.read_text())
    command = command.replace("%%", "%").replace("/var/lib", str(tmp_path))
    for folder in ("countersink", "countersink-backup"):
        (tmp_path / folder).mkdir()
    for size, code in ((1, 0), (shutil.disk_usage(tmp_path).free * 3 // 4, 1)):
        with (tmp_path / "countersink" / "countersink.db").open("wb") as file:
            file.truncate(size)  # takes no room
        assert subprocess.run(["/bin/sh", "-c", command], check=False).returncode == code


HANDED_OVER: Final = """
import os, struct, subprocess, sys
from pathlib import Path
from ingest.access.keys import content_of
kind, by, user = *sys.argv[1:], 64000
place = Path("/mnt")
subprocess.run(["mount", "-t", kind, "none", place], check=True)
file = place / "keys.json"
file.write_bytes(b"{}")
for one, mode, may in ((file, 0o400, 4), (place, 0o500, 5)):
    one.chmod(mode)
    if by == "entry":  # of an access control list: the owner, the user, the group, the most for these two, others
        entries = [(1, may, -1), (2, may, user), (4, 0, -1), (16, may, -1), (32, 0, -1)]
        packed = b"".join(struct.pack("<HHi", *entry) for entry in entries)
        os.setxattr(one, "system.posix_acl_access", struct.pack("<I", 2) + packed)
    elif by == "owner":
        os.chown(one, user, user)
subprocess.run(["mount", "-o", "remount,ro", place], check=True)
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
print(content_of(file).decode())
"""


@pytest.mark.parametrize(
    ("kind", "by", "reads"), [("tmpfs", "entry", True), ("ramfs", "owner", True), ("tmpfs", "nothing", False)]
)
def test_the_unit_reads_the_keys_that_are_handed_over(kind: str, by: str, reads: bool) -> None:
    """LoadCredential= makes a read-only file system with a file of root's that names the user of the unit, or where no
    file system knows such entries, with a file of that user's. A file that is root's alone can't be read.
    """
    if os.geteuid() != 0:
        missing("only root can mount")
    command = [program("unshare"), "--mount", sys.executable, "-c", HANDED_OVER, kind, by]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode == 0, done.stdout.strip() == "{}") == (reads, reads), done.stderr
    assert reads or "can't be read (Permission denied)" in done.stderr

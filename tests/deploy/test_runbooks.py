"""What the runbooks say to type can be typed, on each platform."""

import re
import shlex
import subprocess
from typing import Final

import pytest

from countersink_server.cli.main import parser_of_all
from tests.meta.checkout import ROOT
from tests.needs import program

TEXT: Final = (ROOT / "docs" / "runbooks.md").read_text()
PLATFORMS: Final = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
SECTIONS: Final = {one.partition("\n")[0]: one for one in TEXT.split("\n## ")[1:]}
FUNCTIONS: Final = ("cs", "flushers", "logs", "restart")


def shell(script: str) -> str:
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_platform_has_the_same_functions() -> None:
    assert len(PLATFORMS) == 3
    for block in PLATFORMS:
        named = re.findall(r"^declare -f (\w+)$", shell(f"{block}\ndeclare -F"), re.MULTILINE)
        assert tuple(named) == FUNCTIONS


@pytest.mark.parametrize("name", SECTIONS)
def test_each_alert_says_what_to_type_and_when_it_is_over(name: str) -> None:
    (typed,) = re.findall(r"```console\n(.*?)```", SECTIONS[name], re.DOTALL)
    assert "**Over** when " in SECTIONS[name]
    for line in typed.splitlines():
        program, *words = shlex.split(line)
        if program == "cs":
            parser_of_all().parse_args(words)
        elif program in ("logs", "restart"):
            assert words in (["ingest"], ["flusher"])
        elif program == "flushers":
            assert int(words[0]) > 2
        else:
            assert program in ("df", "gcloud", "journalctl", "kubectl", "sudo", "sysctl", "timedatectl")


def test_the_logs_have_what_the_platform_says_and_what_ended_processes_said() -> None:
    stubs = "\n".join(f"{name}() {{ printf '%s\\n' \"$@\"; }}" for name in ("gcloud", "kubectl"))
    cloud_run, gke = (shell(f"{block}\n{stubs}\nlogs flusher 2h") for block in PLATFORMS[:2])
    assert {"textPayload", "jsonPayload.message", "protoPayload.status.message"} < set(re.findall(r"[\w.]+", cloud_run))
    assert re.findall(r"--previous=(\w+)", gke) == ["true", "false"]
    assert gke.count("--since=2h") == 2
    flags = subprocess.run([program("kubectl"), "logs", "--help"], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"--[a-z-]+", gke)) - {"--namespace"} <= set(re.findall(r"--[a-z-]+", flags))


def test_a_command_reaches_the_program_whole() -> None:
    stubs = "\n".join(f"{name}() {{ printf '%s\\n' \"$@\"; }}" for name in ("gcloud", "kubectl", "sudo"))
    for block in PLATFORMS:
        said = shell(f"{block}\n{stubs}\ncs dlq replay --all 'a,b c'").splitlines()
        assert "--args=^|^dlq|replay|--all|a,b c" in said or said[-4:] == ["dlq", "replay", "--all", "a,b c"]

"""What `make test` says of tests that it does not find."""

import subprocess
import sys

import pytest

from tests.meta.checkout import ROOT


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            [],
            "No test of make test matches '-n 0 -k no_such tests/unit/statsd'. Perhaps make check has it: make check ",
        ),
        (["--check"], "Perhaps make test has it: make test ARGS='-n 0 -k no_such tests/unit/statsd'"),
    ],
)
def test_if_no_test_matches_it_says_where_it_may_be(options: list[str], said: str) -> None:
    arguments = ["-n", "0", "-k", "no_such", "tests/unit/statsd"]
    command = [sys.executable, "-m", "tests", *options, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert said in done.stdout

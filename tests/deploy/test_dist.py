"""Client and server install by the lines of the documents into empty environments, without what this checkout has, and
count there.
"""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

import countersink
from tests.deploy.programs import downloaded, run
from tests.meta.checkout import ROOT, tracked
from tests.once import once

COUNTS: Final = """
import sys
from countersink import Client
with Client(sys.argv[1]) as counters:
    counters.incr(sys.argv[2])
    assert counters.flush(30)
    print(counters.get(sys.argv[2], max_age=0).value)
"""
_LINE: Final = re.compile(r'`(pip install "countersink @ [^`]*)`')
ORIGINS: Final = ("the documents", "sources")
"""Both are built on the way; `tests/meta` installs the wheels of the checkout."""


@pytest.fixture
def pip(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Variables for pip: it finds the packages of the locks, and asks no index."""
    there = downloaded(tmp_path_factory, f"{sys.version_info[0]}.{sys.version_info[1]}")
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(there), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def commit(folder: Path) -> None:
    """A repository with what a commit of this checkout would have."""
    git = ("git", "-C", folder, f"--work-tree={ROOT}", "-c", "user.name=test", "-c", "user.email=test@localhost")
    names = "\0".join(path.relative_to(ROOT).as_posix() for path in tracked())
    run("git", "-C", folder, "init", "--quiet")
    run(*git, "add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul", cwd=ROOT, told=names)
    run(*git, "commit", "--quiet", "--message", "All")
    run(*git, "update-server-info")  # so that files are all that a server needs


@pytest.fixture
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its URL."""
    folder = once(tmp_path_factory, "repository", commit)
    files = partial(_Quiet, directory=str(folder / ".git"))
    with ThreadingHTTPServer(("127.0.0.1", 0), files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def lines(page: Path) -> list[list[str]]:
    """What a page tells you to install, each without `pip install`."""
    text = page.read_text()
    found = _LINE.findall(text) + re.findall(r'^(pip install "countersink @ .*)$', text, re.MULTILINE)
    return [shlex.split(line)[2:] for line in found]


def wanted(what: str, dist: Path, repository: str) -> list[str]:
    """The arguments of pip that install client and server from there."""
    if what == "the documents":
        (line,) = [line for line in lines(ROOT / "README.md") if len(line) == 2]
        return [word.replace("REPOSITORY", repository) for word in line]
    return [str(path) for path in sorted(dist.glob("*.tar.gz"))]


def installed(folder: Path, arguments: Sequence[str], pip: Mapping[str, str]) -> Path:
    """The commands of an environment in which nothing else was asked for."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", *arguments, more=pip)
    run(sys.executable, "-m", "pip", "--python", python, "check")
    return python.parent


@contextmanager
def service(scripts: Path, folder: Path) -> Iterator[str]:
    """The URL of `countersink up`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COUNTERSINK_", "PYTHON"))}
    environment |= {"XDG_STATE_HOME": str(folder / "state"), "PYTHONUNBUFFERED": "1"}
    command = [str(scripts / "countersink"), "up", "--port", "0", "--data", str(folder / "data")]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            url = re.search(r"http://127\.0\.0\.1:\d+", said)
            assert url, said
            yield url[0]
        finally:
            process.terminate()
        assert process.wait(30) == 0


@pytest.mark.parametrize("what", ORIGINS)
def test_the_server_installs_and_counts(
    what: str, pip: Mapping[str, str], dist: Path, repository: str, tmp_path: Path
) -> None:
    scripts = installed(tmp_path / "empty", wanted(what, dist, repository), pip)
    assert countersink.__version__ in run(scripts / "countersink", "--version")
    with service(scripts, tmp_path) as url:
        request = urllib.request.Request(f"{url}/v1/counters/visits", method="POST")
        with contextlib.closing(urllib.request.urlopen(request, timeout=20)) as answer:
            assert answer.status == 202
        with contextlib.closing(urllib.request.urlopen(f"{url}/v1/counters/visits", timeout=20)) as answer:
            assert json.load(answer)["value"] == 1


def test_the_client_installs_alone_and_counts(pip: Mapping[str, str], dist: Path, tmp_path: Path) -> None:
    with service(Path(sys.executable).parent, tmp_path) as url:
        scripts = installed(tmp_path / "client", wanted("sources", dist, "")[:1], pip)
        assert run(scripts / "python", "-I", "-c", COUNTS, url, "visits", cwd=tmp_path) == "1\n"
        assert not (scripts / "countersink").exists()


def test_all_pages_say_the_same() -> None:
    client, both = sorted(lines(ROOT / "README.md"), key=len)
    assert client == both[:1]
    assert lines(ROOT / "docs" / "client.md") == [client]

"""The service in memory, and the page that says how to use it in tests."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from countersink import AsyncClient, Client, RejectedError, RequestError
from countersink.testing import Service
from tests.meta.checkout import ROOT

BLOCK: Final = re.compile(r"^```py\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    for name, text in BLOCK.findall((ROOT / "docs" / "testing.md").read_text()):
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").touch()  # so that none of a folder above is read
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", str(tmp_path)]
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "XDG_STATE_HOME": str(tmp_path)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout


def test_all_threads_count() -> None:
    with Service() as service, Client(service.url) as counters, ThreadPoolExecutor(8) as threads:
        for _ in threads.map(lambda _: counters.increment("a"), range(200)):
            pass
        assert service.value("a") == 200
        assert service.value("b") == 0
        assert counters.get("a").updated_at is not None
        assert counters.get("b").updated_at is None


async def test_a_client_for_asyncio_counts() -> None:
    with Service() as service:
        async with AsyncClient(service.url) as counters:
            counters.incr("a", by=3)
            await counters.flush()
        assert service.values() == {"a": 3}


def test_what_is_cleared_is_forgotten() -> None:
    with Service() as service, Client(service.url) as counters:
        for _ in range(2):
            assert counters.increment("page:a", id="x").duplicates == 0
            assert service.values("page:") == {"page:a": 1}
            service.clear()
            assert not service.values()


def test_it_ends_connections_and_frees_its_port() -> None:
    first = Service()
    port = int(first.url.rpartition(":")[2])
    with Client(first.url, patience=0) as counters:
        counters.increment("a")
        first.close()
        with pytest.raises(RequestError):
            counters.get("a")
        with Service(port) as second:
            counters.increment("a", 2)
            assert second.values() == {"a": 2}


def test_a_program_that_forgets_to_close_it_ends_and_its_client_still_sends() -> None:
    forgets = """
import atexit
atexit.register(lambda: print(service.values()))
from countersink import Client
from countersink.testing import Service
from tests.meta.checkout import ROOT
service = Service()
counters = Client(service.url, interval=60)
counters.increment("a")
counters.incr("b")
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", forgets], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert (ran.stdout, ran.stderr) == ("{'a': 1, 'b': 1}\n", "")


def test_what_it_cannot_do_is_said() -> None:
    with Service() as service, Client(service.url) as counters:
        with pytest.raises(RejectedError, match=r"countersink\.testing can't do POST /v1/jobs"):
            counters.start_job("export", "")
        with pytest.raises(RejectedError, match="use a real service"):
            next(counters.watch("a"))

"""The configurations of nginx and HAProxy in docs/proxies.md are valid, and what goes through them counts once."""

import asyncio
import contextlib
import os
import re
import ssl
import subprocess
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from countersink import AsyncClient, RejectedError
from deploy.processes import free_port
from tests.meta.checkout import ROOT
from tests.needs import program
from tests.processes.harness import Processes, processes

pytestmark = pytest.mark.check  # nginx and HAProxy

PAGE: Final = ROOT / "docs" / "proxies.md"
UPSTREAM: Final = "127.0.0.1:8080"
INCREMENTS: Final = 300
AT_ONCE: Final = 20
NGINX: Final = """\
daemon off;
{user}
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{page}
}}
"""


def snippet(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert UPSTREAM in found
    return str(found)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate and its key, and a file with both."""
    folder = tmp_path_factory.mktemp("certificate")
    command = [program("openssl"), *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost")]
    command += ["-keyout", str(folder / "countersink.key"), "-out", str(folder / "countersink.crt")]
    subprocess.run(command, check=True, capture_output=True)
    both = [(folder / name).read_bytes() for name in ("countersink.crt", "countersink.key")]
    (folder / "countersink.pem").write_bytes(b"".join(both))
    return folder


def nginx(folder: Path, certificate: Path, port: int, upstream: str) -> list[str]:
    """Write the configuration of the page for this test. Returns the command that runs it."""
    page = snippet("nginx").replace("listen 443", f"listen 127.0.0.1:{port}").replace(UPSTREAM, upstream)
    page = page.replace("/etc/ssl", str(certificate))
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, page=page, user=user))
    return [program("nginx"), "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


def haproxy(folder: Path, certificate: Path, port: int, upstream: str) -> list[str]:
    page = snippet("haproxy").replace("bind :443", f"bind 127.0.0.1:{port}").replace("/etc/ssl", str(certificate))
    page = page.replace(UPSTREAM, upstream.replace("unix:", "unix@"))
    (folder / "haproxy.cfg").write_text(page)
    return [program("haproxy"), "-f", str(folder / "haproxy.cfg")]


CHECKED: Final[Mapping[Callable[[Path, Path, int, str], list[str]], list[str]]] = {nginx: ["-t"], haproxy: ["-c"]}
"""How to check a configuration without running it."""


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path / "data", COUNTERSINK_FLUSH_INTERVAL="0.05") as it:
        yield it


@contextlib.asynccontextmanager
async def run_until_done(command: list[str], log: Path) -> AsyncIterator[None]:
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=out, stderr=out)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await asyncio.wait_for(process.wait(), 60)


async def chunked() -> AsyncIterator[bytes]:
    yield b'{"del'
    yield b'ta": 1}'


@pytest.mark.parametrize("make", CHECKED, ids=lambda make: make.__name__)
def test_the_configurations_of_the_page_are_valid(
    make: Callable[[Path, Path, int, str], list[str]], tmp_path: Path, certificate: Path
) -> None:
    command = [*make(tmp_path, certificate, free_port(), UPSTREAM), *CHECKED[make]]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr.lower(), done.stderr


@pytest.mark.parametrize("by_file", [False, True], ids=["port", "unix"])
@pytest.mark.parametrize("make", CHECKED, ids=lambda make: make.__name__)
async def test_what_goes_through_a_proxy_counts_once(
    make: Callable[[Path, Path, int, str], list[str]],
    by_file: bool,
    started: Processes,
    tmp_path: Path,
    certificate: Path,
) -> None:
    """Clients share the proxy's connections. Nothing is sent again, so each answer 202 is one increment."""
    path = tmp_path / "socket"
    up = await started.start("up", *(("--host", f"unix:{path}") if by_file else ("--port", "0")))
    upstream = f"unix:{path}" if by_file else f"127.0.0.1:{up.port}"
    port = free_port()
    url = f"https://127.0.0.1:{port}/v1/counters/a"
    trust = ssl.create_default_context(cafile=str(certificate / "countersink.crt"))
    trust.check_hostname = False
    connector = aiohttp.TCPConnector(ssl=trust, limit=AT_ONCE)
    command = make(tmp_path, certificate, port, upstream)
    async with (
        run_until_done(command, tmp_path / "proxy.log"),
        aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(120)) as session,
    ):
        async with asyncio.timeout(60):
            while not await answers(session, url):
                await asyncio.sleep(0.02)
        statuses = await asyncio.gather(*(count(session, url, number) for number in range(INCREMENTS)))
        assert statuses == [202] * INCREMENTS
        async with session.get(f"{url}?max_age=0") as response:
            assert (await response.json())["value"] == INCREMENTS
        async with AsyncClient(f"https://127.0.0.1:{port}", tls=trust) as client:
            client.incr("b", 7)
            assert await client.flush(60)
            assert (await client.get("b", max_age=0)).value == 7
            seen = client.watch("b")
            for value in (7, 8, 9):  # each comes at once, and is not kept in a buffer
                async with asyncio.timeout(60):
                    assert (await anext(seen)).value == value
                client.incr("b")
        async with AsyncClient(f"https://127.0.0.1:{port}", patience=0) as client:
            with pytest.raises(RejectedError, match="certificate"):
                await client.get("b")


async def answers(session: aiohttp.ClientSession, url: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with session.get(url) as response:
            return response.status == 200
    return False


async def count(session: aiohttp.ClientSession, url: str, number: int) -> int:
    """Of three requests, one has no body, one a plain one, and one a chunked one."""
    body = (None, b'{"delta": 1}', chunked())[number % 3]
    async with session.post(url, data=body) as response:
        await response.read()
        return response.status

"""The URL that Terraform makes leads to a Redis as Google runs it: with TLS, a password, and its own authority."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from deploy.processes import free_port
from shared.model.errors import TransientError
from shared.redis.server import Links
from tests.deploy.programs import run
from tests.meta.checkout import ROOT
from tests.needs import program
from tests.world.scraping import until

PASSWORD: Final = "0a1b2c3d-0000-4000-8000-000000000000"
HOST: Final = "127.0.0.1"


def authority(folder: Path) -> str:
    """Makes an authority and a certificate of it, which names the host in a field that no client looks at."""
    folder.mkdir()
    openssl = program("openssl")
    new = ("req", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    run(openssl, *new, "-x509", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem", cwd=folder)
    run(openssl, *new, "-subj", f"/CN={HOST}", "-keyout", "key.pem", "-out", "request.pem", cwd=folder)
    sign = ("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
    run(openssl, *sign, "-out", "cert.pem", cwd=folder)
    return (folder / "ca.pem").read_text()


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    folder = tmp_path / "own"
    authority(folder)
    port = free_port()
    tls = ("--tls-port", str(port), "--port", "0", "--tls-auth-clients", "no", "--requirepass", PASSWORD, "--save", "")
    files = ("--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem", "--tls-ca-cert-file", "ca.pem")
    server = subprocess.Popen([program("redis-server"), *tls, *files], cwd=folder, stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        server.terminate()
        server.wait()


def url(port: int, certificate: str) -> str:
    text = (ROOT / "deploy" / "terraform" / "redis.tf").read_text()
    (made,) = re.findall(r'secret_data = "(.*)"', text)
    for what, value in (
        ("auth_string", PASSWORD),
        ("host", HOST),
        ("port", str(port)),
        ("urlencode", quote(certificate)),
    ):
        made, number = re.subn(rf"\$\{{[^}}]*\b{what}\b[^}}]*\}}", value, made)
        assert number == 1
    return str(made)


async def answers(port: int, certificate: str) -> bool:
    links = Links(url(port, certificate))
    try:
        return bool(await links.call("PING") == b"PONG")
    except TransientError:
        return False
    finally:
        await links.close()


async def test_it_is_used_if_its_authority_is_known_and_not_otherwise(port: int, tmp_path: Path) -> None:
    await until(lambda: answers(port, (tmp_path / "own" / "ca.pem").read_text()))
    assert not await answers(port, authority(tmp_path / "another"))

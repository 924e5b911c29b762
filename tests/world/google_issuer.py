"""An issuer of Google's ID tokens on loopback: it signs tokens, and serves its certificates."""

import contextlib
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.auth import crypt, jwt

from tests.world.serving import serving

AUDIENCE: Final = "https://counts.example.com"
ACCOUNT: Final = "eventarc@my-project.iam.gserviceaccount.com"


class SigningKey(NamedTuple):
    signer: Any
    certificate: str


@cache
def signing_key(id_: str) -> SigningKey:
    """The one with this id. It takes some time to make."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "federated-signon")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    certificate = made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
    return SigningKey(crypt.RSASigner.from_string(pem, id_), certificate)


def token(account: str = ACCOUNT, key: str = "a", ago: float = 0, lasts: float = 3_600, **claims: Any) -> str:
    """A token for this account, made so many seconds ago. A claim that is None is left out."""
    made = int(time.time() - ago)
    all_ = {
        "iss": "https://accounts.google.com",
        "aud": AUDIENCE,
        "azp": "1" * 21,
        "sub": "1" * 21,
        "email": account,
        "email_verified": True,
        "iat": made,
        "exp": made + int(lasts),
        **claims,
    }
    return str(jwt.encode(signing_key(key).signer, {k: v for k, v in all_.items() if v is not None}).decode())


class Issuer:
    def __init__(self) -> None:
        self.url = ""
        self.keys = ["a"]
        """The ids of those whose certificates it serves."""
        self.fetches = 0
        self.status = 200
        self.max_age = 20_000

    @property
    def settings(self) -> dict[str, Any]:
        return {"audience": (AUDIENCE,), "google_certificates": self.url}

    async def serve(self, _: web.Request) -> web.Response:
        self.fetches += 1
        found = {id_: signing_key(id_).certificate for id_ in self.keys}
        headers = {"Cache-Control": f"public, max-age={self.max_age}, must-revalidate"}
        return web.json_response(found, status=self.status, headers=headers)


@contextlib.asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    app = web.Application()
    app.router.add_get("/certs", issuer.serve)
    async with serving(web.AppRunner(app)) as port:
        issuer.url = f"http://127.0.0.1:{port}/certs"
        yield issuer

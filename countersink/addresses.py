"""Reads the URL of a service, and says what is wrong with it if no good answer comes."""

import os
import re
import ssl
from http.client import BadStatusLine, RemoteDisconnected
from typing import Any, Final
from urllib.parse import urlsplit

UNIX: Final = "unix:"
"""How the URL of a Unix socket begins; its path follows."""
_WITHOUT_SCHEME: Final = re.compile(r"[\w.-]+(:\d{1,5})?/?", re.ASCII)
_TLS_ALERT: Final = "\x15\x03"
"""How the answer to a request without TLS begins where TLS is spoken."""
_WANTS_TLS: Final = (b"HTTPS port", b"HTTPS server", b"SSL-enabled")
"""What nginx, Go and Apache say there."""


def parts_of(url: str) -> tuple[Any, str]:
    """The parts of the URL, and the path of its Unix socket if it names one. Raises `ValueError` if it is wrong."""
    if url.startswith(UNIX) and len(url) > len(UNIX):
        return urlsplit("http://localhost"), url.removeprefix(UNIX)
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and not parts.query and not parts.fragment
        if good and parts.port != 0:
            parts.hostname.encode("idna") if parts.hostname else b""
            return parts, ""
    except ValueError:
        pass
    form = f"http://{url}" if _WITHOUT_SCHEME.fullmatch(url) else "http://HOST:PORT"
    raise ValueError(f"{url!r} is not the URL of a service: write it as {form}")


def flaw_of_scheme(shown: str, error: Exception) -> str | None:
    """Why no attempt can succeed: only one of the two sides speaks TLS, or the certificate is not trusted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {shown} is not trusted: {error.verify_message}. SSL_CERT_FILE can name a file with the"
            " authority that signed it"
        )
    if isinstance(error, ssl.SSLError) and error.reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST"}:
        return f"{shown} does not speak TLS: write {shown.replace('https://', 'http://', 1)}, or the port that does"
    if isinstance(error, BadStatusLine) and str(error).startswith(_TLS_ALERT):
        return wants_tls(shown)
    return None


def asks_for_tls(body: bytes) -> bool:
    """Whether this is how a server answers that wanted TLS."""
    return any(words in body for words in _WANTS_TLS)


def wants_tls(shown: str) -> str:
    return f"{shown} speaks TLS: write {shown.replace('http://', 'https://', 1)}"


def why(error: Exception, seconds: float) -> str:
    """Why there is no answer, and what to look at."""
    if isinstance(error, TimeoutError):
        return f"it took longer than {seconds:g} seconds"
    if isinstance(error, RemoteDisconnected):
        return "it closed the connection without an answer. Is the URL right, and should it begin with https://?"
    if isinstance(error, BadStatusLine):
        return f"what answers does not speak HTTP: {str(error).strip()[:60]!r}. Is the port right?"
    if isinstance(error, OSError) and error.errno and error.errno > 0 and not isinstance(error, ssl.SSLError):
        said = os.strerror(error.errno)
    else:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"{said}. Is it running, and is the URL right?"

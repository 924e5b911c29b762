"""Reads who sends a request from its headers. Pure.

Clients send the same headers again and again, so the fast path reads them once for each block of headers.
"""

from typing import Final, NamedTuple

from multidict import CIMultiDictProxy

from ingest.access.origins import host_without_port, is_foreign


class Credentials(NamedTuple):
    """It is hashed with each request, so it holds only strings and flags."""

    host: str | None
    """Without its port; empty if it is no host, None if there is no header."""
    origin: str
    """The origin of the page that made a browser send the request, or empty."""
    is_foreign: bool
    """Whether that page is not one of this service."""
    navigates: bool
    """Whether a browser opens a page, because somebody follows a link."""
    asks_for: str
    """The method that a browser asks whether a page may use, in a preflight request; or empty."""
    authorization: tuple[str, ...]
    """All headers of this name. Only one of them is good."""
    forwarded: tuple[str, ...]
    """X-Forwarded-For, line by line."""

    def size(self) -> int:
        """How many characters it holds."""
        texts = (self.host or "", self.origin, self.asks_for, *self.authorization, *self.forwarded)
        return sum(map(len, texts))


NONE: Final = Credentials(None, "", False, False, "", (), ())
"""The credentials of a connection that does not speak HTTP."""


def credentials_in(headers: CIMultiDictProxy[str]) -> Credentials:
    hosts = headers.getall("Host", ())
    return Credentials(
        host_without_port(",".join(hosts)) if hosts else None,
        ",".join(headers.getall("Origin", ())),
        is_foreign(headers),
        headers.get("Sec-Fetch-Mode") == "navigate",
        headers.get("Access-Control-Request-Method", ""),
        tuple(headers.getall("Authorization", ())),
        tuple(headers.getall("X-Forwarded-For", ())),
    )

"""Publishes batches on a Pub/Sub topic, where a flusher finds them. It needs the extra `pubsub`.

It uses REST over the connections of `Transport`: gRPC does not work in the child of a fork if its parent has used it.
"""

import json
import logging
import os
import re
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Any, Final

from countersink.answers import RejectedError, UnavailableError
from countersink.interrupts import say
from countersink.transport import AGAIN, Answer, Request, Transport

try:
    import google.auth
    import requests
    from google.auth.transport.requests import Request as GoogleRequest
except ImportError as error:
    said = "a client of a topic needs the packages of the extra pubsub: pip install 'google-auth[requests]'"
    raise ImportError(said) from error

GOOGLE: Final = "https://pubsub.googleapis.com"
SCOPE: Final = "https://www.googleapis.com/auth/pubsub"
SOURCE: Final = "countersink-python"
TYPE: Final = "increments"
UNAUTHENTICATED: Final = 401
_URL: Final = re.compile(r"pubsub://([A-Za-z0-9_.:-]+)/([A-Za-z][A-Za-z0-9._~+%-]{2,254})")


class Topic(Transport):
    """Takes the requests that batches make, and publishes each as one message."""

    again = AGAIN | {409, 499}  # what Pub/Sub calls ABORTED and CANCELLED
    name = "Pub/Sub"
    can_be_asked = False

    def __init__(self, url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None) -> None:
        parts = _URL.fullmatch(url)
        if parts is None:
            raise ValueError(f"{url!r} is not the URL of a topic: write it as pubsub://PROJECT/TOPIC")
        emulator = os.environ.get("PUBSUB_EMULATOR_HOST")
        super().__init__(f"http://{emulator}" if emulator else GOOGLE, headers, tls)
        self.shown = url
        self._publish = f"/v1/projects/{parts[1]}/topics/{parts[2].replace('%', '%25')}:publish"
        self._needs_credentials = not emulator
        self._warned = False

    def forget(self) -> None:
        super().forget()
        self._credentials: Any = None

    def attempt(self, request: Request, seconds: float) -> Answer:
        """Publish once. A token that Pub/Sub does not know any more is replaced."""
        until = time.monotonic() + seconds
        new = self._credentials is None
        headers = self._authorization(seconds) if self._needs_credentials else {}
        publish = Request("POST", self._publish, _message(request), headers)
        try:
            answer = super().attempt(publish, max(until - time.monotonic(), 0.05))
        except RejectedError as error:
            if error.status != UNAUTHENTICATED or new:
                raise
            self._credentials = None
            later = UnavailableError(str(error), status=error.status)
            later.maybe_accepted = error.maybe_accepted
            raise later from error
        if not answer.object["messageIds"]:
            raise ValueError("nothing was published")
        return Answer(b'{"accepted": 1}', {})

    def detail(self, answer: Mapping[str, Any]) -> str | None:
        error = answer.get("error")
        if not isinstance(error, dict) or "message" not in error:
            return None
        return f"{self.shown}: {error.get('status', 'error')}: {error['message']}"

    def _authorization(self, seconds: float) -> dict[str, str]:
        """The header with Google's token. Without credentials it is tried again: some come only after a pod starts."""
        headers: dict[str, str] = {}
        try:
            if self._credentials is None:
                self._credentials, _ = google.auth.default(scopes=[SCOPE])
            with requests.Session() as session:
                ask = partial(GoogleRequest(session), timeout=seconds)
                self._credentials.before_request(ask, "POST", GOOGLE + self._publish, headers)
        except Exception as error:  # also OSError and ValueError, as for a file that can't be read
            said = f"no credentials for {self.shown}: {error}"
            if not self._warned:
                self._warned = True
                say(logging.WARNING, f"countersink keeps trying: {said}")
            later = UnavailableError(said)
            later.maybe_accepted = False
            raise later from error
        return headers


def _message(request: Request) -> bytes:
    """The body of a publish. The same request is always the same message, which counts once."""
    key = request.headers.get("Idempotency-Key")
    data = request.body or b""
    attributes = {
        "ce-specversion": "1.0",
        "ce-id": key or sha256(data).hexdigest(),  # increments with ids have no key, and count once by their ids
        "ce-source": SOURCE,
        "ce-type": TYPE,
        "content-type": "application/json",
    }
    message = {"data": b64encode(data if key else b'{"keyed":%b}' % data).decode(), "attributes": attributes}
    return json.dumps({"messages": [message]}).encode()

"""The OpenAPI 3.1 document of the service: what exists, kept by hand. tests/http hold every answer against it."""

from functools import cache

import orjson

from ingest.openapi.paths import PATHS
from ingest.openapi.responses import RESPONSES
from ingest.openapi.schemas import SCHEMAS

_DESCRIPTION = """\
Counts exactly once. A 2xx answer to an increment is a promise, except with `ack=none`; anything else, or no answer, is
not: send it again **with the same id**.

Bodies are JSON in UTF-8 whatever their Content-Type, with no name twice in an object; `Content-Encoding` may be gzip or
deflate. Unknown fields and parameters are mistakes, except parameters of `/healthz`, `/readyz`, `/metrics`, `/version`
and this document. `HEAD` goes wherever `GET` does. Errors are RFC 9457 problem documents. Any request can meet 400 for
what is not HTTP, 408 for headers that do not arrive in time, 431 for a header beyond 8 KiB or too many of them, and 503
where too many clients are connected."""


@cache
def document(version: str) -> bytes:
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Countersink",
                "version": version,
                "description": _DESCRIPTION,
                "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "tags": [
                {"name": "count", "description": "Increments in"},
                {"name": "read", "description": "Totals out"},
                {"name": "manage", "description": "Counters themselves"},
                {"name": "operate", "description": "For those who run it"},
            ],
            "paths": PATHS,
            "components": {"schemas": SCHEMAS, "responses": RESPONSES},
        }
    )

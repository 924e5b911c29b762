"""The OpenAPI 3.1 document of the service. It is written by hand; tests/http check every answer against it."""

from functools import cache

import orjson

from ingest.openapi import browsers, console, dead_letters, events, fleet, series, watching
from ingest.openapi.paths import PATHS
from ingest.openapi.responses import RESPONSES
from ingest.openapi.schemas import SCHEMAS
from ingest.openapi.security import SECURITY_SCHEMES, secured

_DESCRIPTION = """\
Counts exactly once. A 2xx answer to an increment is a promise, except with `ack=none`; anything else, or no answer, is
not: send it again **with the same id**.

Bodies are JSON in UTF-8 whatever their Content-Type, and no name may be twice in an object; `Content-Encoding` may be
gzip or deflate. Unknown fields and parameters are errors, except parameters of `/`, `/docs`, `/healthz`, `/readyz`,
`/metrics`, `/version` and this document. `HEAD` works wherever `GET` does. Errors are RFC 9457 problem documents.

Operations with `security` need a key where a service has keys, and nothing where it has none.

Any request may be answered 400 if it is not valid HTTP, 408 if its headers do not arrive in time, 431 if a header is
longer than 8 KiB or there are too many headers, and 503 if too many clients are connected."""


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
                {"name": "count", "description": "Send increments"},
                {"name": "read", "description": "Read totals"},
                {"name": "manage", "description": "Change counters"},
                {"name": "operate", "description": "Run the service"},
            ],
            "paths": secured(
                PATHS
                | browsers.PATHS
                | console.PATHS
                | dead_letters.PATHS
                | events.PATHS
                | fleet.PATHS
                | series.PATHS
                | watching.PATHS
            ),
            "components": {
                "schemas": SCHEMAS | dead_letters.SCHEMAS | events.SCHEMAS | fleet.SCHEMAS | series.SCHEMAS,
                "responses": RESPONSES,
                "securitySchemes": SECURITY_SCHEMES,
            },
        }
    )

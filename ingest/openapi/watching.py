"""What the OpenAPI document says of streams."""

from typing import Any, Final

from ingest.openapi.paths import PATHS as OTHER_PATHS
from ingest.openapi.responses import failures
from ingest.openapi.schemas import PREFIX, TEXT, ref
from ingest.routes.watches import LEAST, MOST_NAMES, MOST_PLACES

_STREAM: Final = {
    "200": {
        "description": "Server-sent events that do not end. The data of each is a counter as JSON: first all present"
        " values, then each value that changes. A client that reads slowly gets the newest value and not those before."
        " A comment comes at least every 10 seconds. An event `problem`, with a problem document, says why the stream"
        " ends.",
        "content": {"text/event-stream": {"schema": TEXT}},
    }
} | failures(400, 422, 429, 503, 507)
_LIMIT: Final = (
    f"All streams together may watch {MOST_PLACES:,} counters, of which a stream takes {LEAST} at least, and one of a"
    f" prefix {MOST_NAMES:,}. One client may take as many as are still free."
)

PATHS: Final[dict[str, Any]] = {
    "/v1/counters/{name}/watch": {
        "parameters": OTHER_PATHS["/v1/counters/{name}"]["parameters"],
        "get": {
            "operationId": "watchCounter",
            "tags": ["read"],
            "summary": "Watch one counter: its value now, and each change",
            "description": _LIMIT,
            "parameters": [
                {
                    "name": "Last-Event-ID",
                    "in": "header",
                    "description": "The id of the last event of an earlier stream. If nothing has changed since, the"
                    " stream begins without an event.",
                    "schema": TEXT,
                }
            ],
            "responses": _STREAM,
        },
    },
    "/v1/watch": {
        "get": {
            "operationId": "watchCounters",
            "tags": ["read"],
            "summary": "Watch several counters in one stream: by `name`, or all under a `prefix`",
            "description": f"{_LIMIT} A new counter under the prefix is seen within a second or two.",
            "parameters": [
                {
                    "name": "name",
                    "in": "query",
                    "description": "A counter. Not with `prefix`.",
                    "schema": {"type": "array", "items": ref("Name"), "minItems": 1, "maxItems": MOST_NAMES},
                    "explode": True,
                    "example": ["page:/home"],
                },
                {
                    "name": "prefix",
                    "in": "query",
                    "description": f"Watch all counters whose names start with it, {MOST_NAMES:,} at most.",
                    "schema": PREFIX,
                },
            ],
            "responses": _STREAM,
        },
    },
}

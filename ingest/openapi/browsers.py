"""What the OpenAPI document says of what web pages load."""

from typing import Any, Final

from ingest.openapi.responses import failures
from ingest.openapi.schemas import TEXT

PATHS: Final[dict[str, Any]] = {
    "/countersink.js": {
        "get": {
            "operationId": "getScript",
            "tags": ["count"],
            "summary": "The script that web pages count with",
            "parameters": [
                {
                    "name": "v",
                    "in": "query",
                    "description": "Any text. A browser that keeps a script fetches it anew if this is another one.",
                    "schema": TEXT,
                }
            ],
            "responses": {
                "200": {
                    "description": "JavaScript. It may be kept for an hour.",
                    "headers": {"ETag": {"required": True, "schema": TEXT}},
                    "content": {"text/javascript": {"schema": TEXT}},
                },
                "304": {"description": "The client has it: its `If-None-Match` names the `ETag`."},
            }
            | failures(400, 422),
        }
    }
}

"""The operations of the OpenAPI document that are pages for people."""

from typing import Any, Final

from ingest.openapi.responses import failures
from ingest.openapi.schemas import TEXT

CONSOLE: Final[dict[str, Any]] = {
    "/": {
        "get": {
            "operationId": "console",
            "tags": ["operate"],
            "summary": "The console, a page for people",
            "responses": {
                "200": {"description": "The page.", "content": {"text/html": {"schema": TEXT}}},
                "304": {"description": "The page has not changed."},
            }
            | failures(400),
        }
    }
}

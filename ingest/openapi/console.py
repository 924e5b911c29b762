"""The operations of the OpenAPI document that are pages for people."""

from typing import Any, Final

from ingest.openapi.responses import failures
from ingest.openapi.schemas import TEXT


def _page(operation: str, summary: str) -> dict[str, Any]:
    return {
        "get": {
            "operationId": operation,
            "tags": ["operate"],
            "summary": summary,
            "responses": {
                "200": {"description": "The page.", "content": {"text/html": {"schema": TEXT}}},
                "304": {"description": "The page has not changed."},
            }
            | failures(400),
        }
    }


PATHS: Final = {
    "/": _page("console", "The console, a page for people"),
    "/docs": _page("docs", "This document as a page for people"),
}

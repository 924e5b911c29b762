"""What the OpenAPI document says of what web pages load."""

from typing import Any, Final

from ingest.openapi.paths import PATHS as OTHER_PATHS
from ingest.openapi.responses import failures
from ingest.openapi.schemas import TEXT, ref
from ingest.routes.badge import COLORS, STYLES
from ingest.routes.pictures import MAX_AGE

_ETAG: Final = {"ETag": {"required": True, "schema": TEXT, "description": "Send it as `If-None-Match`."}}
_SAME: Final = {"304": {"description": "The client has it: its `If-None-Match` names the `ETag`."}}
_NAME: Final = OTHER_PATHS["/v1/counters/{name}"]["parameters"]


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


_STYLE: Final = _query("style", {"enum": [*STYLES]}, "The form of the corners.")


def _badge(operation: str, summary: str, content: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    described = "Nobody needs a key for it. Counters that are not under a prefix in COUNTERSINK_BADGES have none: 404."
    return {
        "parameters": _NAME,
        "get": {
            "operationId": operation,
            "tags": ["read"],
            "summary": summary,
            "description": described,
            "parameters": [
                _query("label", ref("Name"), "The text before the total. The counter's name if it is missing."),
                _query(
                    "color",
                    {"type": "string", "pattern": f"^(#?([0-9a-fA-F]{{3}}|[0-9a-fA-F]{{6}})|{'|'.join(COLORS)})$"},
                    "The color of the total: a name, or 3 or 6 hexadecimal digits.",
                ),
                *parameters,
            ],
            "responses": {
                "200": {
                    "description": f"The badge. It may be kept for {MAX_AGE} seconds.",
                    "headers": _ETAG,
                    "content": content,
                }
            }
            | _SAME
            | failures(400, 404, 422, 503, 507),
        },
    }


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
                    "headers": _ETAG,
                    "content": {"text/javascript": {"schema": TEXT}},
                }
            }
            | _SAME
            | failures(400, 422),
        }
    },
    "/v1/counters/{name}/pixel.gif": {
        "parameters": _NAME,
        "get": {
            "operationId": "getPixel",
            "tags": ["count"],
            "summary": "Count one, and return a picture of one transparent pixel",
            "description": "For pages and mails that can't run scripts. Counters that are not under a prefix in"
            " COUNTERSINK_PIXELS have none: 404. `HEAD` does not count.",
            "parameters": [_query("id", ref("Id"), "It counts once, however often the picture is shown.")],
            "responses": {
                "200": {
                    "description": "It is durable, and will be counted exactly once.",
                    "content": {"image/gif": {"schema": {}}},
                }
            }
            | failures(400, 404, 422, 429, 503, 507),
        },
    },
    "/v1/counters/{name}/badge.svg": _badge(
        "getBadge", "A badge with the total, as SVG", {"image/svg+xml": {"schema": TEXT}}, _STYLE
    ),
    "/v1/counters/{name}/badge.json": _badge(
        "getBadgeData",
        "A badge with the total, for the endpoint badge of shields.io",
        {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "schemaVersion": {"const": 1},
                        **dict.fromkeys(("label", "message", "color"), TEXT),
                    },
                    "required": ["schemaVersion", "label", "message", "color"],
                }
            }
        },
    ),
}

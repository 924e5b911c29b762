"""The operation that reads counts by time, and the schema of its answer."""

from typing import Any, Final

from ingest.openapi.responses import answer, failures
from ingest.openapi.schemas import BOOLEAN, BY, INSTANT, WHEN, WHOLE, ref
from shared.counters.series import MOST_POINTS

_BEGIN: Final = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:00Z$"}
_POINT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"from": _BEGIN, "count": WHOLE},
    "required": ["from", "count"],
    "additionalProperties": False,
}
_SERIES: Final[dict[str, Any]] = {
    "name": ref("Name"),
    "by": BY,
    "from": {**_BEGIN, "description": "The start of the range: your `from`, or later if older periods are not kept."},
    "to": {**_BEGIN, "description": "The end of the range, which is not part of it."},
    "points": {
        "type": "array",
        "items": _POINT,
        "maxItems": MOST_POINTS,
        "description": "In order of time. A period without a point has the count 0.",
    },
    "total": {**WHOLE, "description": "The sum of the points."},
    "exact": {
        **BOOLEAN,
        "description": "Whether each point has all that was accepted in its period before the read, and those of"
        " periods that are over are final.",
    },
    "as_of": INSTANT,
}

SCHEMAS: Final[dict[str, Any]] = {
    "Series": {
        "type": "object",
        "properties": _SERIES,
        "required": [*_SERIES],
        "additionalProperties": False,
    }
}


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": description}


PATHS: Final[dict[str, Any]] = {
    "/v1/counters/{name}/series": {
        "parameters": [
            {
                "name": "name",
                "in": "path",
                "description": "Percent-encoded, `/` as `%2F`.",
                "schema": ref("Name"),
                "required": True,
            }
        ],
        "get": {
            "operationId": "getSeries",
            "tags": ["read"],
            "summary": "Read what was counted in each minute, hour or day",
            "responses": answer(200, "Series", "The counts of the periods that begin in the range.")
            | failures(400, 404, 422, 503, 507),
            "parameters": [
                _query("by", BY, "The length of a period. Periods are those of UTC.") | {"required": True},
                _query("from", WHEN, "The start of the range. Without it, the range begins as early as possible."),
                _query("to", WHEN, f"The end of the range, which has at most {MOST_POINTS} periods. Without it: now."),
            ],
        },
    }
}

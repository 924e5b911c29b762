"""The operations of the OpenAPI document: their parameters, bodies and answers."""

from typing import Any, Final

from ingest.openapi.responses import answer, failures
from ingest.openapi.schemas import ASKED, PREFIX, TEXT, ref
from ingest.routes.counters import DEFAULT_LISTED, MOST_LISTED
from ingest.routes.increments import DEFAULT_WAIT, LONGEST_WAIT
from shared.counters.reader import LONGEST_AGE

Part = dict[str, Any]


def _in(where: str, name: str, schema: Part, description: str, **more: Any) -> Part:
    return {"name": name, "in": where, "description": description, "schema": schema, **more}


def _body(schema: str, media_types: Part | None = None, *, required: bool = True) -> Part:
    return {"required": required, "content": {"application/json": {"schema": ref(schema)}, **(media_types or {})}}


_READ: Final = failures(400, 422, 503, 507)
_WRITE: Final = failures(400, 408, 413, 415, 422, 429, 503, 507)

_NAME: Final = _in("path", "name", ref("Name"), "Percent-encoded, `/` as `%2F`.", required=True)
_KEY: Final = _in(
    "header",
    "Idempotency-Key",
    ref("Id"),
    "Makes it safe to send the request again. For a single increment without an id it is the id. For a batch it covers"
    " the items without an id of their own, and the first body wins. An item with an id counts once by that id,"
    " whatever the key.",
)
_HOW: Final = [
    _in(
        "query",
        "wait",
        {"enum": ["applied"]},
        "Answer 200 when the increments are in the store, or 202 after the timeout. Cannot be combined with `ack`.",
    ),
    _in(
        "query",
        "timeout",
        {"type": "number", "minimum": 0, "default": DEFAULT_WAIT},
        f"How many seconds to `wait`. More than {LONGEST_WAIT:g} is read as {LONGEST_WAIT:g}.",
    ),
    _in("query", "ack", {"enum": ["none"]}, "Answer at once with `durable: false`. This answer is no promise."),
]
_ONCE: Final = _in(
    "header",
    "Idempotency-Key",
    ref("Id"),
    "Makes it safe to send the request again: it is done once, and each answer is the first one.",
)
_MAX_AGE: Final = _in(
    "query",
    "max_age",
    {"type": "number", "minimum": 0},
    f"How many seconds old the cached part of the answer may be. More than {LONGEST_AGE:g} is read as"
    f" {LONGEST_AGE:g}. Pending increments are never cached.",
)


_LOCATION: Final = {"headers": {"Location": {"required": True, "schema": TEXT, "description": "Where the job is."}}}


def _plain(operation: str, summary: str, content: Part, problems: Part) -> Part:
    found = {"200": {"description": summary, "content": content}}
    return {
        "get": {
            "operationId": operation,
            "tags": ["operate"],
            "summary": summary,
            "responses": found | problems,
        }
    }


def _json(properties: Part) -> Part:
    return {"application/json": {"schema": {"type": "object", "properties": properties, "required": [*properties]}}}


def _set(operation: str, summary: str, body: str) -> Part:
    return {
        "operationId": operation,
        "tags": ["manage"],
        "summary": summary,
        "parameters": [_ONCE],
        "requestBody": _body(body, required=body != "Nothing"),
        "responses": {
            "200": answer("It is done. Every read from now on shows it.", "Changed"),
            **_WRITE,
        },
    }


PATHS: Final[Part] = {
    "/v1/counters/{name}": {
        "parameters": [_NAME],
        "post": {
            "operationId": "increment",
            "tags": ["count"],
            "summary": "Count one increment",
            "parameters": [
                _in("query", "by", ref("Delta"), "The delta, instead of the one in the body."),
                *_HOW,
                _KEY,
            ],
            "requestBody": _body("Single", required=False),
            "responses": {
                "200": answer("The increment is in the store. `value` is the counter's value.", "Applied"),
                "202": answer("The increment is durable, and will be counted exactly once.", "Accepted"),
                **_WRITE,
            },
        },
        "get": {
            "operationId": "getCounter",
            "tags": ["read"],
            "summary": "Read one counter",
            "parameters": [_MAX_AGE],
            "responses": {
                "200": answer(
                    "The counter. One that was never seen or was deleted is 0 with `exists: false`.", "Counter"
                ),
                **_READ,
            },
        },
        "put": _set("setCounter", "Set a counter. Later increments are added to the value", "SetValue"),
        "delete": _set(
            "deleteCounter", "Delete a counter. It is 0, and is not listed until it is counted again", "Nothing"
        ),
    },
    "/v1/counters/{name}/reset": {
        "parameters": [_NAME],
        "post": _set("resetCounter", "Set a counter to 0", "Nothing"),
    },
    "/v1/increments": {
        "post": {
            "operationId": "incrementMany",
            "tags": ["count"],
            "summary": "Count many increments",
            "parameters": [*_HOW, _KEY],
            "requestBody": _body("Batch", {"application/x-ndjson": {"schema": TEXT}}),
            "responses": {
                "200": answer("All accepted increments are in the store.", "BatchAccepted"),
                "202": answer(
                    "The accepted increments are durable, and will be counted exactly once.", "BatchAccepted"
                ),
                **_WRITE,
            },
        }
    },
    "/v1/counters": {
        "get": {
            "operationId": "listCounters",
            "tags": ["read"],
            "summary": "Read several counters: by `name`, in that order, or by `prefix`, page by page",
            "parameters": [
                _in(
                    "query",
                    "name",
                    {"type": "array", "items": ref("Name"), "maxItems": MOST_LISTED},
                    "Not with `prefix`, `limit` or `page_token`.",
                    explode=True,
                ),
                _in(
                    "query",
                    "prefix",
                    PREFIX,
                    "List the counters whose names start with it; all counters if it is empty or missing.",
                ),
                _in(
                    "query",
                    "limit",
                    {"type": "integer", "minimum": 1, "maximum": MOST_LISTED, "default": DEFAULT_LISTED},
                    "Maximum number of counters on a page.",
                ),
                _in("query", "page_token", TEXT, "The `next_page_token` of the previous page."),
                _MAX_AGE,
            ],
            "responses": {
                "200": answer(
                    "The counters, in the order of the UTF-8 bytes of their names, or of the `name` parameters.",
                    "Counters",
                ),
                **_READ,
            },
        }
    },
    "/v1/counters/{name}/shards": {
        "parameters": [_NAME],
        "put": {
            "operationId": "raiseShards",
            "tags": ["manage"],
            "summary": "Raise the number of shards. Only `compact` lowers it",
            "requestBody": _body("SetShards"),
            "responses": {
                "200": answer(
                    "The present number. Without `compact`, a lower number than that changes nothing.", "Shards"
                ),
                **_WRITE,
                **failures(409),
            },
        },
    },
    "/v1/jobs": {
        "post": {
            "operationId": "startJob",
            "tags": ["manage"],
            "summary": "Start a job, which changes or exports each counter under a prefix once",
            "parameters": [_in("header", "Idempotency-Key", ref("Id"), "Used as the id if the body has none.")],
            "requestBody": _body("NewJob"),
            "responses": {
                "200": answer("A job with this id was started before: its present state.", "Job") | _LOCATION,
                "202": answer(
                    "The job has begun. Flushers will visit each counter that is in the store now once. They may also"
                    " visit counters that are created meanwhile.",
                    "Job",
                )
                | _LOCATION,
                **failures(400, 408, 409, 413, 415, 422, 429, 503, 507),
            },
        }
    },
    "/v1/jobs/{id}": {
        "parameters": [_in("path", "id", ref("JobId"), "Of the job.", required=True)],
        "get": {
            "operationId": "getJob",
            "tags": ["manage"],
            "summary": "Show the state of a job",
            "responses": {
                "200": answer("The job, with its results so far.", "Job"),
                **failures(400, 404, 422, 503, 507),
            },
        },
        "delete": {
            "operationId": "stopJob",
            "tags": ["manage"],
            "summary": "Stop a job. What it has done is kept",
            "responses": {
                "200": answer(
                    "The job. It has `failed` unless it had ended before. Flushers that work on it may take 10"
                    " seconds to notice.",
                    "Job",
                ),
                **failures(400, 404, 422, 503, 507),
            },
        },
    },
    "/v1/jobs/{id}/export": {
        "parameters": [_in("path", "id", ref("JobId"), "Of the job.", required=True)],
        "get": {
            "operationId": "getExport",
            "tags": ["manage"],
            "summary": "Read what a job of kind `export` has written, in the order of the UTF-8 bytes of the names",
            "parameters": [_in("query", "page_token", TEXT, "The `Next-Page-Token` of the previous answer.")],
            "responses": {
                "200": {
                    "description": "A line of JSON for each counter: its `name`, and its `value`, exact at an instant"
                    " while the job ran. The last page has no header `Next-Page-Token`.",
                    "content": {"application/x-ndjson": {"schema": TEXT}},
                },
                **failures(400, 404, 409, 422, 503, 507),
            },
        },
    },
    "/v1/receipts/{id}": {
        "get": {
            "operationId": "getReceipt",
            "tags": ["read"],
            "summary": "Show whether accepted increments are pending, applied or dead-lettered",
            "parameters": [_in("path", "id", ASKED, "The `receipt` of an answer.", required=True)],
            "responses": {
                "200": answer(
                    "The state. A batch is applied when all its parts are. Unknown does not mean lost.", "Receipt"
                ),
                **_READ,
            },
        }
    },
    "/healthz": _plain("healthz", "The service is alive", _json({"status": {"const": "alive"}}), failures(400)),
    "/readyz": _plain(
        "readyz",
        "The service can accept increments durably",
        _json({"status": {"const": "ready"}}),
        failures(400, 503, 507),
    ),
    "/metrics": _plain("metrics", "Metrics for Prometheus", {"text/plain": {"schema": TEXT}}, failures(400)),
    "/version": _plain("version", "The version of the service", _json({"version": TEXT}), failures(400)),
    "/openapi.json": _plain(
        "openapi", "This document", {"application/json": {"schema": {"type": "object"}}}, failures(400)
    ),
}

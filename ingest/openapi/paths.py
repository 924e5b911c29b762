"""The operations: what can be asked, and how it is answered."""

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
    "Makes it safe to send again. Of a single increment without an id it is the id; of a batch it covers the items"
    " without an id of their own, and the first body wins. An item with an id counts once by that, whatever the key.",
)
_HOW: Final = [
    _in(
        "query",
        "wait",
        {"enum": ["applied"]},
        "Answer 200 when it is in the store, or 202 after the timeout. Not with `ack`.",
    ),
    _in(
        "query",
        "timeout",
        {"type": "number", "minimum": 0, "default": DEFAULT_WAIT},
        f"Of `wait`, in seconds; {LONGEST_WAIT:g} at most, and more means that.",
    ),
    _in("query", "ack", {"enum": ["none"]}, "Answer at once, with `durable: false`: no promise."),
]
_ONCE: Final = _in(
    "header",
    "Idempotency-Key",
    ref("Id"),
    "Makes it safe to send again: it happens once, and each answer is that of the first time.",
)
_MAX_AGE: Final = _in(
    "query",
    "max_age",
    {"type": "number", "minimum": 0},
    f"Seconds that the cached part of the answer may be old; {LONGEST_AGE:g} at most, and more means that. What is"
    " pending is always of now.",
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
            "200": answer("It is done, and every read from now on shows it.", "Changed"),
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
                _in("query", "by", ref("Delta"), "The delta, in place of the one in the body."),
                *_HOW,
                _KEY,
            ],
            "requestBody": _body("Single", required=False),
            "responses": {
                "200": answer("It is in the store; `value` is the counter's.", "Applied"),
                "202": answer("It is durable, and will be counted exactly once.", "Accepted"),
                **_WRITE,
            },
        },
        "get": {
            "operationId": "getCounter",
            "tags": ["read"],
            "summary": "Read one counter",
            "parameters": [_MAX_AGE],
            "responses": {
                "200": answer("One that was never seen, or was deleted, is 0 with `exists: false`.", "Counter"),
                **_READ,
            },
        },
        "put": _set("setCounter", "Set a counter: what is accepted later is added to it", "SetValue"),
        "delete": _set("deleteCounter", "Set a counter to 0, and list it no more until it is counted again", "Nothing"),
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
                "200": answer("All of the accepted are in the store.", "BatchAccepted"),
                "202": answer("The accepted are durable, and will be counted exactly once.", "BatchAccepted"),
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
                _in("query", "prefix", PREFIX, "Names that start with it; all, if it is empty or not there."),
                _in(
                    "query",
                    "limit",
                    {"type": "integer", "minimum": 1, "maximum": MOST_LISTED, "default": DEFAULT_LISTED},
                    "Most counters on a page.",
                ),
                _in("query", "page_token", TEXT, "The `next_page_token` of the page before."),
                _MAX_AGE,
            ],
            "responses": {
                "200": answer("In order of the names' UTF-8 bytes, or as asked.", "Counters"),
                **_READ,
            },
        }
    },
    "/v1/counters/{name}/shards": {
        "parameters": [_NAME],
        "put": {
            "operationId": "raiseShards",
            "tags": ["manage"],
            "summary": "Have at least that many shards; fewer only with `compact`",
            "requestBody": _body("SetShards"),
            "responses": {
                "200": answer("The number now. Fewer than there are changes nothing without `compact`.", "Shards"),
                **_WRITE,
                **failures(409),
            },
        },
    },
    "/v1/jobs": {
        "post": {
            "operationId": "startJob",
            "tags": ["manage"],
            "summary": "Do something to each counter under a prefix, once",
            "parameters": [_in("header", "Idempotency-Key", ref("Id"), "Stands for an `id` where there is none.")],
            "requestBody": _body("NewJob"),
            "responses": {
                "200": answer("The job of this id, which was asked for before.", "Job") | _LOCATION,
                "202": answer(
                    "It has begun. Flushers will visit each counter that is in the store by now once; one that is"
                    " made meanwhile they may visit, or not.",
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
            "summary": "How far a job is",
            "responses": {
                "200": answer("What it has come to so far, or in the end.", "Job"),
                **failures(400, 404, 422, 503, 507),
            },
        },
        "delete": {
            "operationId": "stopJob",
            "tags": ["manage"],
            "summary": "Stop a job: what is done stays",
            "responses": {
                "200": answer(
                    "The job, which has `failed`, unless it had ended. Flushers that are at it may take 10 seconds"
                    " to notice.",
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
            "summary": "What a job of kind `export` has written, in order of the names' UTF-8 bytes",
            "parameters": [_in("query", "page_token", TEXT, "The `Next-Page-Token` of the answer before.")],
            "responses": {
                "200": {
                    "description": "A line of JSON for each counter: `name` and `value`, exact at an instant while the"
                    " job ran. Without the header `Next-Page-Token` it is the last page.",
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
            "summary": "Where accepted increments are",
            "parameters": [_in("path", "id", ASKED, "The `receipt` of an answer.", required=True)],
            "responses": {
                "200": answer("Applied when all its parts are. Unknown does not mean lost.", "Receipt"),
                **_READ,
            },
        }
    },
    "/healthz": _plain("healthz", "It is alive", _json({"status": {"const": "alive"}}), failures(400)),
    "/readyz": _plain(
        "readyz", "It can accept durably", _json({"status": {"const": "ready"}}), failures(400, 503, 507)
    ),
    "/metrics": _plain("metrics", "For Prometheus", {"text/plain": {"schema": TEXT}}, failures(400)),
    "/version": _plain("version", "Its version", _json({"version": TEXT}), failures(400)),
    "/openapi.json": _plain(
        "openapi", "This document", {"application/json": {"schema": {"type": "object"}}}, failures(400)
    ),
}

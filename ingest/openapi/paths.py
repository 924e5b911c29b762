"""The operations of the OpenAPI document: their parameters, bodies and answers."""

from typing import Any, Final

from ingest.openapi.responses import answer, failures
from ingest.openapi.schemas import ASKED, PREFIX, TEXT, WHOLE, form, ref
from ingest.routes.counters import DEFAULT_LISTED, MOST_LISTED
from ingest.routes.increments import DEFAULT_WAIT, LONGEST_WAIT, MOST_VALUES
from ingest.routes.receipt_status import MOST_WAITS
from shared.counters.reader import LONGEST_AGE

Part = dict[str, Any]

_FORM: Final = "application/x-www-form-urlencoded"
_SECONDS: Final = {"type": "number", "minimum": 0}
_READ: Final = failures(400, 422, 503, 507)
_WRITE: Final = failures(400, 408, 413, 415, 422, 429, 503, 507)
_JOB_READ: Final = failures(400, 404, 422, 503, 507)


def _query(name: str, schema: Part, description: str, **more: Any) -> Part:
    return {"name": name, "in": "query", "description": description, "schema": schema, **more}


def _path(name: str, schema: Part, description: str) -> Part:
    return {"name": name, "in": "path", "description": description, "schema": schema, "required": True}


def _key(description: str) -> Part:
    return {"name": "Idempotency-Key", "in": "header", "description": description, "schema": ref("Id")}


def _body(schema: str, media_types: Part | None = None, *, required: bool = True) -> Part:
    return {"required": required, "content": {"application/json": {"schema": ref(schema)}, **(media_types or {})}}


def _json(properties: Part) -> Part:
    return {"application/json": {"schema": {"type": "object", "properties": properties, "required": [*properties]}}}


def _does(operation: str, tag: str, summary: str, responses: Part, **more: Any) -> Part:
    return {"operationId": operation, "tags": [tag], "summary": summary, "responses": responses, **more}


def _changes(operation: str, summary: str, body: str = "Nothing") -> Part:
    return _does(
        operation,
        "manage",
        summary,
        answer(200, "Changed", "It is done. Every read from now on shows it.") | _WRITE,
        parameters=[_ONCE],
        requestBody=_body(body, required=body != "Nothing"),
    )


def _plain(operation: str, summary: str, content: Part, *problems: int) -> Part:
    return {
        "get": _does(
            operation,
            "operate",
            summary,
            {"200": {"description": summary, "content": content}} | failures(400, *problems),
        )
    }


_NAME: Final = _path("name", ref("Name"), "Percent-encoded, `/` as `%2F`.")
_JOB: Final = _path("id", ref("JobId"), "The id of the job.")
_KEY: Final = _key(
    "Makes it safe to send the request again. For a single increment without an id it is the id. For a batch it covers"
    " the items without an id of their own, and the first body wins. An item with an id counts once by that id,"
    " whatever the key."
)
_ONCE: Final = _key("Makes it safe to send the request again: it is done once, and each answer is the first one.")
_HOW: Final = [
    _query(
        "wait",
        {"enum": ["applied"]},
        "Answer 200 when the increments are in the store, or 202 after the timeout. Cannot be combined with `ack`."
        f" At most {MOST_WAITS} requests may wait at once, and one client may take as many places as are still free:"
        " others get 503 or 429.",
    ),
    _query(
        "timeout",
        {**_SECONDS, "default": DEFAULT_WAIT},
        f"How many seconds to `wait`. More than {LONGEST_WAIT:g} is read as {LONGEST_WAIT:g}.",
    ),
    _query("ack", {"enum": ["none"]}, "Answer at once with `durable: false`. This answer is no promise."),
    _query(
        "return",
        {"enum": ["value"]},
        "Answer with the totals of the counters, of an instant after the increments were accepted: for at most"
        f" {MOST_VALUES} counters, for callers that may read. Cannot be combined with `ack`.",
    ),
]
_MAX_AGE: Final = _query(
    "max_age",
    _SECONDS,
    f"How many seconds old the cached part of the answer may be. More than {LONGEST_AGE:g} is read as"
    f" {LONGEST_AGE:g}. Pending increments are never cached.",
)
_LOCATION: Final = {"Location": {"required": True, "schema": TEXT, "description": "Where the job is."}}
_EXPORT: Final = {
    "description": "A line of JSON for each counter: its `name`, and its `value`, exact at an instant while the job"
    " ran. If the job has `by`, the line is a `Series` with the counter's `value`. The last page has no header"
    " `Next-Page-Token`.",
    "content": {"application/x-ndjson": {"schema": TEXT}},
}

PATHS: Final[Part] = {
    "/v1/counters/{name}": {
        "parameters": [_NAME],
        "post": _does(
            "increment",
            "count",
            "Count one increment",
            answer(200, "Applied", "The increment is in the store. `value` is the counter's value.")
            | answer(202, "Accepted", "The increment is durable, and will be counted exactly once.")
            | _WRITE,
            parameters=[_query("by", ref("Delta"), "The delta, instead of the one in the body."), *_HOW, _KEY],
            requestBody=_body("Single", {_FORM: {"schema": form("delta", "id")}}, required=False),
        ),
        "get": _does(
            "getCounter",
            "read",
            "Read one counter",
            answer(200, "Counter", "The counter. One that was never seen or was deleted is 0 with `exists: false`.")
            | _READ,
            parameters=[_MAX_AGE],
        ),
        "put": _changes("setCounter", "Set a counter. Later increments are added to the value", "SetValue"),
        "delete": _changes("deleteCounter", "Delete a counter. It is 0, and is not listed until it is counted again"),
    },
    "/v1/counters/{name}/reset": {"parameters": [_NAME], "post": _changes("resetCounter", "Set a counter to 0")},
    "/v1/increments": {
        "post": _does(
            "incrementMany",
            "count",
            "Count many increments",
            answer(200, "BatchAccepted", "All accepted increments are in the store.")
            | answer(202, "BatchAccepted", "The accepted increments are durable, and will be counted exactly once.")
            | _WRITE,
            parameters=[*_HOW, _KEY],
            requestBody=_body(
                "Batch",
                {
                    "application/x-ndjson": {"schema": TEXT},
                    _FORM: {"schema": form("counter", "delta", "id", required="counter")},
                },
            ),
        )
    },
    "/v1/counters": {
        "get": _does(
            "listCounters",
            "read",
            "Read several counters: by `name`, in that order, or by `prefix`, page by page",
            answer(
                200,
                "Counters",
                "The counters, in the order of the UTF-8 bytes of their names, or of the `name` parameters.",
            )
            | _READ,
            parameters=[
                _query(
                    "name",
                    {"type": "array", "items": ref("Name"), "maxItems": MOST_LISTED},
                    "Not with `prefix`, `limit` or `page_token`.",
                    explode=True,
                ),
                _query(
                    "prefix",
                    PREFIX,
                    "List the counters whose names start with it; all counters if it is empty or missing.",
                ),
                _query(
                    "limit",
                    {**WHOLE, "minimum": 1, "maximum": MOST_LISTED, "default": DEFAULT_LISTED},
                    "Maximum number of counters on a page.",
                ),
                _query("page_token", TEXT, "The `next_page_token` of the previous page."),
                _MAX_AGE,
            ],
        )
    },
    "/v1/counters/{name}/shards": {
        "parameters": [_NAME],
        "put": _does(
            "raiseShards",
            "manage",
            "Raise the number of shards. Only `compact` lowers it",
            answer(200, "Shards", "The present number. Without `compact`, a lower number than that changes nothing.")
            | _WRITE
            | failures(409),
            requestBody=_body("SetShards"),
        ),
    },
    "/v1/jobs": {
        "get": _does(
            "listJobs",
            "manage",
            "List the jobs that are remembered, at most 100",
            answer(200, "Jobs", "The jobs of this owner, as far as the key may use their counters.")
            | failures(400, 503, 507),
        ),
        "post": _does(
            "startJob",
            "manage",
            "Start a job, which changes or exports each counter under a prefix once",
            answer(200, "Job", "A job with this id was started before: its present state.", _LOCATION)
            | answer(
                202,
                "Job",
                "The job has begun. Flushers will visit each counter that was counted before, once. They may also"
                " visit counters that are created meanwhile.",
                _LOCATION,
            )
            | _WRITE
            | failures(409),
            parameters=[_key("Used as the id if the body has none.")],
            requestBody=_body("NewJob"),
        ),
    },
    "/v1/jobs/{id}": {
        "parameters": [_JOB],
        "get": _does(
            "getJob",
            "manage",
            "Show the state of a job",
            answer(200, "Job", "The job, with its results so far.") | _JOB_READ,
        ),
        "delete": _does(
            "stopJob",
            "manage",
            "Stop a job. What it has done is kept, but the result of an export is deleted",
            answer(
                200,
                "Job",
                "The job. It has `failed` unless it had ended before; an export has `failed` in any case. Flushers that"
                " work on it may take 10 seconds to notice.",
            )
            | _JOB_READ,
        ),
    },
    "/v1/jobs/{id}/export": {
        "parameters": [_JOB],
        "get": _does(
            "getExport",
            "manage",
            "Read what a job of kind `export` has written, in the order of the UTF-8 bytes of the names",
            {"200": _EXPORT} | _JOB_READ | failures(409),
            parameters=[_query("page_token", TEXT, "The `Next-Page-Token` of the previous answer.")],
        ),
    },
    "/v1/receipts/{id}": {
        "get": _does(
            "getReceipt",
            "read",
            "Show whether accepted increments are pending, applied or dead-lettered",
            answer(200, "Receipt", "The state. A batch is applied when all its parts are. Unknown does not mean lost.")
            | _READ
            | failures(404),
            parameters=[_path("id", ASKED, "The `receipt` of an answer.")],
        )
    },
    "/healthz": _plain("healthz", "The service is alive", _json({"status": {"const": "alive"}})),
    "/readyz": _plain(
        "readyz", "The service can accept increments durably", _json({"status": {"const": "ready"}}), 503, 507
    ),
    "/metrics": _plain("metrics", "Metrics for Prometheus", {"text/plain": {"schema": TEXT}}),
    "/version": _plain("version", "The version of the service", _json({"version": TEXT})),
    "/openapi.json": _plain("openapi", "This document", {"application/json": {"schema": {"type": "object"}}}),
}

"""The answers that several operations share, most of them problems."""

from typing import Any, Final

from ingest.openapi.schemas import TEXT, Schema, ref

_RETRY: Final = {
    "Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1}, "description": "Seconds."}
}


def _response(description: str, media_type: str, schema: Schema, headers: dict[str, Any] | None) -> dict[str, Any]:
    content = {media_type: {"schema": schema}}
    return {"description": description, **({"headers": headers} if headers else {}), "content": content}


_WORDS: Final = {
    "400": "The request can't be read, or holds no valid increment. Nothing was counted.",
    "401": "There is no key, or it is not valid or has expired. Nothing was counted.  Only if the service has keys.",
    "403": "This key may not do this, or not to this counter; or the web page that made a browser send the request may"
    " not. Nothing was counted.",
    "404": "There is no such job or receipt, or it has been forgotten. Or this counter has no such picture or"
    " counts by time.",
    "405": "The path does not have this method. `Allow` lists those that it has.",
    "408": "The body did not arrive in time. Nothing was counted.",
    "409": "For a job: another job has this id, or the job is not done. For shards: fewer shards can't hold the value,"
    " or an ndb application writes to them, too.",
    "413": "The body is too large (more than 1 MiB if it is about one counter) or compressed too much, has too many"
    " increments or other values, or names too many counters for one Idempotency-Key.",
    "414": "The URL is longer than 16 KiB.",
    "415": "The Content-Encoding is not gzip, deflate or identity.",
    "422": "A field, parameter or header is wrong: `field` names it. Nothing was counted.",
    "429": "This client or this counter has its full share of what may wait, this key has counted more than its rate"
    " allows, too much of what this client sent was refused, too many exports are kept or jobs of this owner run, or"
    " the name is new and there are as many counters as COUNTERSINK_MAX_COUNTERS allows; others are served. Send less"
    " at once, and try again after `Retry-After`, with the same ids.",
    "503": "Too much is waiting, the broker or the store is not available, or a counter that is to be set can't be read"
    " exactly now. Try again after `Retry-After`.",
    "507": "The disk is full. Try again after `Retry-After`.",
}
_HEADERS: Final[dict[str, dict[str, Any]]] = {
    "401": {"WWW-Authenticate": {"required": True, "schema": TEXT}},
    "405": {"Allow": {"required": True, "schema": TEXT}},
    "415": {"Accept-Encoding": {"required": True, "schema": TEXT}},
    "429": _RETRY,
    "503": _RETRY,
    "507": _RETRY,
}

RESPONSES: Final = {
    f"E{status}": _response(words, "application/problem+json", ref("Problem"), _HEADERS.get(status))
    for status, words in _WORDS.items()
}


def failures(*statuses: int) -> dict[str, Any]:
    """These problems, and those that any path can have."""
    return {str(status): {"$ref": f"#/components/responses/E{status}"} for status in (*statuses, 403, 405, 414)}


def answer(status: int, schema: str, description: str, headers: dict[str, Any] | None = None) -> dict[str, Any]:
    """A good answer, under its status."""
    return {str(status): _response(description, "application/json", ref(schema), headers)}

"""The answers that several operations share: what can go wrong, in words."""

from typing import Any, Final

from ingest.openapi.schemas import ref

_PROBLEM: Final = {"application/problem+json": {"schema": ref("Problem")}}
_RETRY: Final = {
    "Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1}, "description": "Seconds."}
}


def _problem(description: str, headers: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"description": description, **({"headers": headers} if headers else {}), "content": _PROBLEM}


_WORDS: Final = {
    "400": "It can't be read, or holds no good increment. Nothing was counted.",
    "404": "There is no such job, or no longer.",
    "405": "Another method is meant; `Allow` says which.",
    "408": "The body did not arrive in time. Nothing was counted.",
    "409": "Of a job: there is another one of this id, or it is not done. Of shards: fewer can't hold it all, or an ndb"
    " application writes to them, too.",
    "413": "The body (beyond 1 MiB where it is about one counter), the number of its increments or other objects, or of"
    " counters under an Idempotency-Key, is too large.",
    "414": "The URL is longer than 16 KiB.",
    "415": "The Content-Encoding is none of gzip, deflate, identity.",
    "422": "A field, parameter or header is wrong: `field` names it. Nothing was counted.",
    "429": "This client, or this counter, holds its share of what may wait; others are served. Send less at once, and"
    " come back after `Retry-After`, with the same ids.",
    "503": "Too much is waiting, or the broker or the store is away; or a counter that is to be set can't be read"
    " exactly now. Come back after `Retry-After`.",
    "507": "The disk is full. Come back after `Retry-After`.",
}
_HEADERS: Final[dict[str, dict[str, Any]]] = {
    "405": {"Allow": {"required": True, "schema": {"type": "string"}}},
    "415": {"Accept-Encoding": {"required": True, "schema": {"type": "string"}}},
    "429": _RETRY,
    "503": _RETRY,
    "507": _RETRY,
}

RESPONSES: Final = {f"E{status}": _problem(words, _HEADERS.get(status)) for status, words in _WORDS.items()}


def failures(*statuses: int) -> dict[str, Any]:
    """These and the two that any URL can meet."""
    return {str(status): {"$ref": f"#/components/responses/E{status}"} for status in (*statuses, 405, 414)}


def answer(description: str, schema: str, media_type: str = "application/json") -> dict[str, Any]:
    return {"description": description, "content": {media_type: {"schema": ref(schema)}}}

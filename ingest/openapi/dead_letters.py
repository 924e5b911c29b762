"""The operations on dead letters, and the schemas of their bodies and answers."""

from typing import Any, Final

from ingest.openapi.responses import answer, failures
from ingest.openapi.schemas import BOOLEAN, COUNT, TEXT, TEXT_OR_NULL, WHOLE, ref
from ingest.routes.dead_letters import DEFAULT_LISTED, MOST_IDS, MOST_LISTED
from shared.model.dead_letters import MOST_COUNTERS, MOST_START

Part = dict[str, Any]

_STATE: Final = {
    "enum": ["dead", "unreadable", "applied", "dropped"],
    "description": "`dead`: not counted. `unreadable`: nothing in it can be counted. `applied`, `dropped`: that was"
    " done with it before, and a replay or a drop only removes it.",
}
_MORE: Final = {**BOOLEAN, "description": "Whether there is more to do. Then send the same request again."}
_NOT_FOUND: Final = {
    "type": "array",
    "items": TEXT,
    "description": "Ids of no dead letter: they were replayed or dropped before, or somebody else holds them"
    " on Pub/Sub.",
}


def _object(properties: Part, *, required: list[str] | None = None) -> Part:
    names = [*properties] if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def _list(properties: Part) -> Part:
    return {"type": "array", "items": _object(properties)}


def _increments(which: str) -> Part:
    return {**COUNT, "description": f"Increments that were {which}."}


_IDS: Final = {
    "type": "array",
    "items": ref("Id"),
    "minItems": 1,
    "maxItems": MOST_IDS,
    "description": "Ids that the list shows.",
}
_LETTER: Final = {
    "id": TEXT,
    "published": {**TEXT, "description": "When the message was published: RFC 3339, if it is a date at all."},
    "reason": {**TEXT, "description": "Why it was not counted."},
    "state": _STATE,
    "flaw": {**TEXT_OR_NULL, "description": "Why nothing in it can be counted; null if it can."},
    "increments": {**COUNT, "description": "How many increments it holds."},
    "counters": {
        "type": "object",
        "additionalProperties": WHOLE,
        "description": f"What it would add to its first {MOST_COUNTERS} counters.",
    },
    "more_counters": {**COUNT, "description": "How many counters more it has."},
    "size": {
        "type": ["integer", "null"],
        "description": "Bytes of the message; null if only the store has what it counts.",
    },
    "start": {**TEXT_OR_NULL, "description": f"The first {MOST_START} bytes of the message, as text."},
}

SCHEMAS: Final[Part] = {
    "DeadLetters": _object(
        {
            "dead_letters": _list(_LETTER),
            "next_page_token": {
                **TEXT_OR_NULL,
                "description": "For the next page; null on the last one. A page may be short, or empty, before that.",
            },
            "complete": {
                **BOOLEAN,
                "description": "Whether this page and those before it show all dead letters. Never true on Pub/Sub,"
                " which does not tell.",
            },
        }
    ),
    "ReplayLetters": {
        "oneOf": [
            _object({"ids": _IDS, "all": {"const": False}, "too_old": BOOLEAN}, required=["ids"]),
            _object({"all": {"const": True, "description": "All dead letters."}, "too_old": BOOLEAN}, required=["all"]),
        ],
        "description": "`too_old` also counts letters so old that nobody can tell whether they were counted. Send it"
        " only if you know that they were not.",
    },
    "LettersReplayed": _object(
        {
            "counted": _increments("counted by this request"),
            "already": _increments("counted before"),
            "dropped": _increments("dropped before"),
            "left": _increments("not counted. Their letters stay"),
            "letters": {**COUNT, "description": "Letters that were looked at."},
            "letters_left": {**COUNT, "description": "Letters that stay dead letters."},
            "reasons": _list({"id": TEXT, "why": TEXT})
            | {"description": "Why letters stay, for the first 100 of them."},
            "not_found": _NOT_FOUND,
            "more": _MORE,
        }
    ),
    "DropLetters": _object({"ids": _IDS}),
    "LettersDropped": _object(
        {
            "dropped": _list({"id": TEXT, "increments": {**COUNT, "description": "Increments that were given up."}}),
            "not_found": _NOT_FOUND,
            "more": _MORE,
        }
    ),
}


def _post(operation: str, summary: str, body: str, said: str, description: str) -> Part:
    return {
        "post": {
            "operationId": operation,
            "tags": ["manage"],
            "summary": summary,
            "responses": answer(200, said, description) | failures(400, 408, 413, 415, 422, 429, 503, 507),
            "requestBody": {"required": True, "content": {"application/json": {"schema": ref(body)}}},
        }
    }


PATHS: Final[Part] = {
    "/v1/dead-letters": {
        "get": {
            "operationId": "listDeadLetters",
            "tags": ["manage"],
            "summary": "List dead letters: messages that were accepted and could not be counted",
            "responses": answer(200, "DeadLetters", "Some dead letters, with the reasons.")
            | failures(400, 422, 503, 507),
            "parameters": [
                {
                    "name": "limit",
                    "in": "query",
                    "description": "Maximum number of letters on a page.",
                    "schema": {**WHOLE, "minimum": 1, "maximum": MOST_LISTED, "default": DEFAULT_LISTED},
                },
                {
                    "name": "page_token",
                    "in": "query",
                    "description": "The `next_page_token` of the previous page.",
                    "schema": TEXT,
                },
            ],
        }
    },
    "/v1/dead-letters/replay": _post(
        "replayDeadLetters",
        "Count dead letters after all. Each increment counts once, however often you send this",
        "ReplayLetters",
        "LettersReplayed",
        "What was counted, and which letters are left.",
    ),
    "/v1/dead-letters/drop": _post(
        "dropDeadLetters",
        "Give dead letters up for good. Reads exclude them at once",
        "DropLetters",
        "LettersDropped",
        "The letters that were dropped.",
    ),
}

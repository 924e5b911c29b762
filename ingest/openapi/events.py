"""What the OpenAPI document says of CloudEvents."""

from typing import Any, Final

from ingest.openapi.paths import PATHS as OTHER_PATHS
from ingest.openapi.schemas import Schema, ref
from ingest.parsing.events import BATCH, MOST_EVENTS, ONE
from ingest.publishing.coalescer import MAX_ENTRIES
from shared.model.words import MAX_ID_BYTES

_BATCH_OF_INCREMENTS: Final = OTHER_PATHS["/v1/increments"]["post"]
_IDENTITY: Final = {"type": "string", "minLength": 1, "maxLength": MAX_ID_BYTES}
_COUNTERS: Final = {"type": "object", "propertyNames": ref("Name"), "additionalProperties": ref("Delta")}


def _increment(id_: Schema, *required: str) -> Schema:
    """One increment, with or without an id of its own. Other fields are ignored."""
    properties = {"counter": ref("Name"), "delta": ref("Delta"), "id": id_, "counters": False, "keyed": False}
    return {"type": "object", "properties": properties, "required": ["counter", *required]}


_INCREMENT: Final = _increment({"anyOf": [ref("Id"), {"type": "null"}]})

SCHEMAS: Final[Schema] = {
    "EventData": {
        "anyOf": [
            _INCREMENT,
            {"type": "array", "items": _INCREMENT, "minItems": 1},
            {
                "type": "object",
                "properties": {
                    "counter": False,
                    "counters": _COUNTERS,
                    "keyed": {"type": "array", "items": _increment(ref("Id"), "id")},
                },
                "anyOf": [
                    {"required": ["counters"], "properties": {"counters": {"minProperties": 1}}},
                    {"required": ["keyed"], "properties": {"keyed": {"minItems": 1}}},
                ],
            },
        ],
        "description": "What the event counts: as in a message on the topic, but all of it together may name at most"
        f" {MAX_ENTRIES} counters and ids.",
        "examples": [{"counter": "visits", "delta": 2}],
    },
    "Event": {
        "type": "object",
        "properties": {
            "specversion": {"const": "1.0"},
            "id": _IDENTITY,
            "source": _IDENTITY,
            "type": {"type": "string", "minLength": 1},
        },
        "required": ["specversion", "id", "source", "type"],
        "anyOf": [
            {"required": ["data"], "properties": {"data": ref("EventData"), "data_base64": {"type": "null"}}},
            {
                "required": ["counter"],
                "properties": {
                    "data": {"type": "null"},
                    "data_base64": {"type": "null"},
                    "counter": ref("Name"),
                    "delta": ref("Delta"),
                },
            },
        ],
        "description": "A CloudEvent 1.0. All events of one owner of keys with the same `source` and `id` count once,"
        " and the first one wins. The data may also be a string that holds one of these forms, or Base64 of it in"
        " `data_base64`. Other attributes are ignored.",
        "examples": [
            {"specversion": "1.0", "id": "1041", "source": "//shop.example", "type": "sold", "data": {"counter": "a"}}
        ],
    },
    "Events": {
        "type": "array",
        "items": ref("Event"),
        "minItems": 1,
        "maxItems": MOST_EVENTS,
        "description": "Each event counts or is rejected as a whole.",
    },
}

PATHS: Final[dict[str, Any]] = {
    "/v1/events": {
        "post": {
            **_BATCH_OF_INCREMENTS,
            "operationId": "countEvents",
            "summary": "Count CloudEvents. Each event counts once, however often it is sent",
            "parameters": [one for one in _BATCH_OF_INCREMENTS["parameters"] if one["in"] == "query"],
            "requestBody": {
                "required": True,
                "description": "One event, or several. In binary mode, the attributes are the headers `ce-specversion`,"
                " `ce-id`, `ce-source` and `ce-type`, and the body is the data, with any other Content-Type. Without a"
                " body, `ce-counter` and `ce-delta` say what counts.",
                "content": {ONE: {"schema": ref("Event")}, BATCH: {"schema": ref("Events")}},
            },
        }
    }
}

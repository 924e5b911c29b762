"""What the OpenAPI document says of the fleet."""

from typing import Any, Final

from ingest.openapi.responses import answer, failures
from ingest.openapi.schemas import BOOLEAN, INSTANT, TEXT
from ingest.routes.fleet import APART, AT_WORK, JOINED, STOPPED, STRUCK


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


_STRUCK: Final = {
    "anyOf": [INSTANT, {"type": "null"}],
    "description": "When other processes took it for dead. It is removed when none of its increments can be pending.",
}
_INGEST: Final = _object(
    id={
        **TEXT,
        "description": "The id of one run of a process. All processes with memory:// on one spool or topic share one.",
    },
    topic={**TEXT, "description": "Where it publishes."},
    state={
        "enum": [JOINED, APART, STOPPED, STRUCK],
        "description": "`joined`: the shared overlay has everything that it accepted. `apart`: the overlay may lack"
        " some of it. `stopped`: it ended in good order, and some of it is not applied yet. `struck`: it was taken for"
        " dead.",
    },
    spool={**BOOLEAN, "description": "Whether it may have envelopes in a spool file."},
    struck=_STRUCK,
)
_FLUSHER: Final = _object(id=TEXT, topic=TEXT, state={"enum": [AT_WORK, STRUCK]}, struck=_STRUCK)

SCHEMAS: Final[dict[str, Any]] = {
    "Fleet": _object(
        whole={
            **BOOLEAN,
            "description": "Whether reads can be exact: there is a shared overlay, and every ingest has `joined` it.",
        },
        as_of={**INSTANT, "description": "The store's clock."},
        ingests={"type": "array", "items": _INGEST},
        flushers={"type": "array", "items": _FLUSHER},
    )
}
PATHS: Final[dict[str, Any]] = {
    "/v1/fleet": {
        "get": {
            "operationId": "getFleet",
            "tags": ["operate"],
            "summary": "List the ingests and flushers that the store knows",
            "description": "A process that was killed stays in the list until the others notice. A service on one file"
            " has no list, and answers 404.",
            "responses": answer(200, "Fleet", "The processes on this store.") | failures(400, 404, 503),
        }
    }
}

"""Owns what the OpenAPI document says of keys: which operations need one, and with which scopes."""

from typing import Any, Final

from ingest.access.rules import NEEDS, TO_COUNT
from ingest.openapi.responses import failures

_KEY: Final = "key"
_PUBLISHABLE: Final = "publishableKey"

SECURITY_SCHEMES: Final = {
    _KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "A key, `csk_…` or `cpk_…`, where the service has keys. A requirement lists the scope that the"
        " key must have. A key may be held to prefixes of names.",
    },
    _PUBLISHABLE: {
        "type": "apiKey",
        "in": "query",
        "name": "key",
        "description": "A publishable key, `cpk_…`, for pages that can't set headers. It may only count, and only from"
        " pages of its origins.",
    },
}


def secured(paths: dict[str, Any]) -> dict[str, Any]:
    """The paths, with what each operation needs by the door's own table. Those that are not in it need no key."""
    return {path: {name: _secured(path, name, part) for name, part in item.items()} for path, item in paths.items()}


def _secured(path: str, method: str, operation: Any) -> Any:
    scopes = NEEDS.get((method.upper(), path))
    if scopes is None:
        return operation
    security = [{_KEY: [scope]} for scope in sorted(scopes)]
    if scopes is TO_COUNT:
        security.append({_PUBLISHABLE: sorted(scopes)})
    return {**operation, "security": security, "responses": operation["responses"] | failures(401)}

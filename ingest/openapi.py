"""The OpenAPI document of the service."""

import orjson


def document(version: str) -> bytes:
    return orjson.dumps({"openapi": "3.1.0", "info": {"title": "Countersink", "version": version}})

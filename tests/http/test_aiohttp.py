"""aiohttp is used by its public names alone, so its versions may come as they like."""

import ast
from pathlib import Path

import pytest
from aiohttp import BaseConnector, StreamReader, web
from aiohttp.abc import AbstractStreamWriter

from tests.meta.checkout import ROOT

CLASSES = (
    *(web.BaseRequest, web.Request, web.RequestHandler, web.Response, web.Server, web.StreamResponse),
    *(AbstractStreamWriter, BaseConnector, StreamReader),
)
PRIVATE = {
    name for kind in CLASSES for name in (*dir(kind), *getattr(kind, "__slots__", ())) if name[:1] == "_" != name[1:2]
}
FILES = [file for room in ("ingest", "flusher", "shared", "countersink_server") for file in (ROOT / room).rglob("*.py")]


@pytest.mark.parametrize("file", sorted(file for file in FILES if "aiohttp" in file.read_text()), ids=str)
def test_no_private_name_of_aiohttp_is_used(file: Path) -> None:
    """But for those of an object's own, which may have the same name."""
    nodes = [*ast.walk(ast.parse(file.read_text()))]
    others = [
        node for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in {"self", "cls"}
    ]
    assert not {node.attr for node in others} & PRIVATE
    imported = [
        node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aiohttp")
    ]
    assert all(node.module in {"aiohttp", "aiohttp.abc"} for node in imported)
    assert not any(alias.name.startswith("_") for node in imported for alias in node.names)
    bases = [ast.unparse(base) for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases]
    assert not {base for base in bases if base.endswith("RequestHandler")}

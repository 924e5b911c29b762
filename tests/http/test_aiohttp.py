"""What is used of aiohttp's connection: all of it in one file, all of it checked at the start."""

import ast
from pathlib import Path

import pytest
from aiohttp import web

from ingest.server import aiohttp_connection
from ingest.server.aiohttp_connection import SUPPORTED, USED, check_aiohttp
from shared.model.errors import SettingsError
from tests.meta.checkout import ROOT, pyproject

OWNER = ROOT / "ingest" / "server" / "aiohttp_connection.py"


def private_of_aiohttp(file: Path) -> set[str]:
    """Private attributes of its connection that a file names."""
    nodes = ast.walk(ast.parse(file.read_text()))
    named = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return {name for name in named if name.startswith("_") and not name.startswith("__")} & {*dir(web.RequestHandler)}


def test_all_that_is_used_is_checked_at_the_start() -> None:
    assert private_of_aiohttp(OWNER) == {name for name in USED if name.startswith("_")}
    check_aiohttp()


@pytest.mark.parametrize("file", sorted((ROOT / "ingest").rglob("*.py")), ids=lambda path: path.name)
def test_nobody_else_uses_it(file: Path) -> None:
    if file not in {OWNER, OWNER.parent / "server.py"}:
        assert not private_of_aiohttp(file) - {"_loop"}


def test_an_aiohttp_that_is_made_in_another_way_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiohttp_connection, "USED", (*USED, "_of_tomorrow"))
    with pytest.raises(SettingsError, match=r"_of_tomorrow is missing.*pip install 'aiohttp>="):
        check_aiohttp()


def test_the_versions_are_those_of_the_package() -> None:
    assert SUPPORTED in pyproject()["project"]["dependencies"]

"""Modules stay small, and the docstring of each says what it owns."""

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.meta.checkout import PACKAGES, ROOT, product, tracked

MOST_LINES: Final = 300


def flaw_of_docstring(source: str) -> str | None:
    docstring = ast.get_docstring(ast.parse(source))
    if not docstring:
        return "there is none"
    first = docstring.partition("\n\n")[0].replace("\n", " ")
    return None if first.endswith((".", "?", "!")) else "its first paragraph is no sentence"


def flaw_of_size(source: str) -> str | None:
    lines = source.count("\n")
    return f"{lines} lines" if lines > MOST_LINES else None


def modules(paths: list[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths if path.suffix == ".py"]


@pytest.mark.parametrize("name", modules(tracked()))
def test_every_module_says_what_it_is(name: str) -> None:
    assert flaw_of_docstring((ROOT / name).read_text()) is None


@pytest.mark.parametrize("name", modules(product()))
def test_no_module_is_long(name: str) -> None:
    assert flaw_of_size((ROOT / name).read_text()) is None


@pytest.mark.parametrize("source", ["", "import os\n", '"""No end"""\n', '"""No end\n\nHere."""\n'])
def test_a_missing_sentence_would_be_seen(source: str) -> None:
    assert flaw_of_docstring(source)


def test_a_long_module_would_be_seen() -> None:
    assert flaw_of_size("\n" * 301)
    assert flaw_of_size("\n" * 300) is None


@pytest.mark.parametrize("packages", [PACKAGES[:1], PACKAGES[1:]])
def test_each_class_name_stands_once(packages: Sequence[str]) -> None:
    """So that a name says which class is meant, in a search and in a conversation about the client or the server."""
    classes = [
        node.name
        for path in product()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in packages
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    twice = {name for name in classes if classes.count(name) > 1}
    assert not twice

"""Makes `google_provider.json` anew: the arguments and attributes of the resources in deploy, taken from a
package of bindings for Terraform's provider. `python -m tests.deploy.google_provider`, after a new resource or version.
"""

import ast
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

ROOT: Final = Path(__file__).parents[2]
MADE: Final = Path(__file__).with_suffix(".json")
LOCK: Final = Path(__file__).with_suffix(".txt")
_RESOURCE: Final = re.compile(r'^resource "google_(\w+)"', re.MULTILINE)
_OF_TERRAFORM: Final = {"connection", "count", "depends_on", "for_each", "lifecycle", "provider", "provisioners"}
Said = str | dict[str, Any]
"""Arguments of a resource or of a block, as words, with `!` if they are required. Where some are blocks: these by their
names, and the others by "".
"""


def known() -> dict[str, dict[str, Any]]:
    """Of each resource its attributes, and of each argument whether it is required and, of a block, those in it."""
    found = json.loads(MADE.read_text())
    for resource in found.values():
        resource["arguments"] = _read(resource["arguments"])
        resource["attributes"] = {*resource["arguments"], *resource["attributes"].split()}
    return dict(found)


def _read(said: Said) -> dict[str, Any]:
    blocks = {"": said} if isinstance(said, str) else dict(said)
    found: dict[str, Any] = {word: {} for word in blocks.pop("").split()}
    found |= {word: {"block": _read(one)} for word, one in blocks.items()}
    return {word.rstrip("!"): one | {"required": word.endswith("!")} for word, one in found.items()}


def main() -> None:
    used = sorted({name for file in ROOT.glob("deploy/**/*.tf") for name in _RESOURCE.findall(file.read_text())})
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*command, "--dest", downloads, "--requirement", str(LOCK)], check=True)
        (wheel,) = Path(downloads).iterdir()
        with ZipFile(wheel) as files:
            sources = {name: files.read(f"cdktn_provider_google/{name}/__init__.py").decode() for name in used}
    found = {f"google_{name}": _resource(name, source) for name, source in sources.items()}
    MADE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def _resource(name: str, source: str) -> dict[str, Said]:
    classes = {one.name: one for one in ast.parse(source).body if isinstance(one, ast.ClassDef)}
    title = "".join(map(str.capitalize, name.split("_")))
    config = classes[f"{title}Config"]
    told = {name for name in _properties(classes[title]) if not name.endswith("_input")} - {*_properties(config)}
    return {"arguments": _arguments(config, classes, _OF_TERRAFORM), "attributes": " ".join(sorted(told))}


def _properties(of: ast.ClassDef) -> Iterator[str]:
    for one in of.body:
        if isinstance(one, ast.FunctionDef) and "builtins.property" in map(ast.unparse, one.decorator_list):
            yield one.name


def _arguments(of: ast.ClassDef, classes: dict[str, ast.ClassDef], left_out: Collection[str] = ()) -> Said:
    begin = next(one for one in of.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    words: list[str] = []
    blocks: dict[str, Said] = {}
    for argument, default in zip(begin.args.kwonlyargs, begin.args.kw_defaults, strict=True):
        assert argument.annotation is not None
        name = argument.arg.rstrip("_")
        word = f"{name}!" if default is None else name
        named = {one.value for one in ast.walk(argument.annotation) if isinstance(one, ast.Constant)}
        inner = sorted(str(one) for one in named if one in classes)
        if inner:
            blocks[word] = _arguments(classes[inner[0]], classes)
        elif name not in left_out:
            words.append(word)
    return {"": " ".join(sorted(words)), **blocks} if blocks else " ".join(sorted(words))


if __name__ == "__main__":
    main()

"""Makes `google_provider.json` anew: the arguments and attributes of the resources in deploy, taken from a
package of bindings for Terraform's provider. `python -m tests.deploy.google_provider`, after a new resource or version.
"""

import ast
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

ROOT: Final = Path(__file__).parents[2]
MADE: Final = Path(__file__).with_suffix(".json")
LOCK: Final = Path(__file__).with_suffix(".txt")
_RESOURCE: Final = re.compile(r'^resource "google_(\w+)"', re.MULTILINE)
_OF_TERRAFORM: Final = {"connection", "count", "depends_on", "for_each", "lifecycle", "provider", "provisioners"}


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


def _resource(name: str, source: str) -> dict[str, Any]:
    classes = {one.name: one for one in ast.parse(source).body if isinstance(one, ast.ClassDef)}
    title = "".join(map(str.capitalize, name.split("_")))
    found = _arguments(f"{title}Config", classes)
    methods = [one.name for one in classes[title].body if isinstance(one, ast.FunctionDef)]
    return {
        "arguments": {argument: said for argument, said in found.items() if argument not in _OF_TERRAFORM},
        "attributes": sorted({one for one in methods if not one.endswith("_input") and not one.startswith("_")}),
    }


def _arguments(name: str, classes: dict[str, ast.ClassDef]) -> dict[str, Any]:
    """Of each argument: whether it is required, and the arguments in it if it is a block."""
    begin = next(one for one in classes[name].body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    found: dict[str, Any] = {}
    for argument, default in zip(begin.args.kwonlyargs, begin.args.kw_defaults, strict=True):
        assert argument.annotation is not None
        names = {one.value for one in ast.walk(argument.annotation) if isinstance(one, ast.Constant)}
        blocks = sorted(str(one) for one in names if one in classes)
        said: dict[str, Any] = {"required": default is None}
        if blocks:
            said["block"] = _arguments(blocks[0], classes)
        found[argument.arg.rstrip("_")] = said
    return found


if __name__ == "__main__":
    main()

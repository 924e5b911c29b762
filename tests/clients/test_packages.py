"""The packages of the clients: what is in them, and that programs of each kind can use them."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.clients.drivers import node
from tests.deploy.programs import run
from tests.meta.checkout import ROOT
from tests.needs import program

NODE = ROOT / "clients" / "node"
TYPED = """
import { Client, Counter, RejectedError } from "countersink";

async function main(): Promise<void> {
  const counters = new Client("http://127.0.0.1:8080", { interval: 100, key: "k" });
  counters.incr("visits");
  counters.incr("visits", 2n, { id: "x" });
  const done: boolean = await counters.flush();
  const found: Counter[] = await counters.getMany(["a", "b"], { maxAge: 0 });
  for await (const counter of counters.watch({ prefix: "a" }, { signal: new AbortController().signal })) {
    const value: number | bigint = counter.value;
  }
  const { points } = await counters.series("a", { by: "hour", from: new Date() });
  try {
    console.log(points[0].from.getTime(), done, found, (await counters.top("", 3)).length, counters.dropped);
  } catch (error) {
    if (error instanceof RejectedError) console.log(error.status);
  }
}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which nothing but the package for Node is installed."""
    folder = tmp_path_factory.mktemp("project")
    node(folder)
    return folder


def described() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((NODE / "package.json").read_text())
    return found


def test_the_package_for_node_holds_its_files_and_needs_nothing(project: Path) -> None:
    there = {path.name for path in (project / "node_modules" / "countersink").iterdir()}
    assert there == {"LICENSE", "README.md", "package.json", *described()["files"]}
    assert [path.name for path in (project / "node_modules").iterdir() if path.name[0] != "."] == ["countersink"]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert described()["version"] == version
    assert (NODE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_it_can_be_imported_and_required_and_is_the_same(project: Path) -> None:
    text = """
        import { createRequire } from "node:module";
        import all, { Client, RejectedError, RequestError, UnavailableError } from "countersink";
        const { Client: required } = createRequire(import.meta.url)("countersink");
        console.log(Client === required, all.Client === Client);
    """
    (project / "both.mjs").write_text(text)
    assert run(program("node"), "both.mjs", cwd=project) == "true true\n"


@pytest.mark.parametrize("kind", ["esm", "commonjs"])
def test_its_types_are_right(project: Path, kind: str) -> None:
    """As TypeScript reads them in modules of both kinds. A wrong call is an error."""
    file = project / f"typed.{'mts' if kind == 'esm' else 'cts'}"
    options = ("--noEmit", "--strict", "--target", "es2022", "--module", "node16", "--moduleResolution", "node16")
    file.write_text(TYPED)
    run(program("tsc"), *options, file.name, cwd=project)
    file.write_text(TYPED.replace('incr("visits")', "incr(7)"))
    with pytest.raises(AssertionError, match="TS2345"):
        run(program("tsc"), *options, file.name, cwd=project)


def test_its_types_name_all_that_it_has() -> None:
    """Each method of the class is declared, and nothing else."""
    code, types = [(NODE / name).read_text().partition("class Client")[2] for name in ("index.js", "index.d.ts")]
    methods = re.findall(r"^  (?:async )?(?:get )?\*?(\w+)\(.*\{$", code.partition("\n}")[0], re.MULTILINE)
    declared = re.findall(r"^  (?:readonly )?(\w+)[(:]", types.partition("\n}")[0], re.MULTILINE)
    assert methods == declared

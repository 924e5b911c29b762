"""The packages of the clients: what is in them, and that programs of each kind can use them, as their pages say."""

import asyncio
import json
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.drivers import GO
from tests.deploy.programs import run
from tests.meta.checkout import ROOT
from tests.needs import program
from tests.processes.harness import processes

NODE = ROOT / "clients" / "node"
TYPED = """
import { Client, Counter, RejectedError } from "countersink";

async function main(): Promise<void> {
  const counters = new Client("http://127.0.0.1:8080", { interval: 100, key: "k" });
  counters.incr("visits");
  counters.incr("visits", 2n, { id: "x" });
  // @ts-expect-error: a wrong call is an error
  counters.incr(7);
  // @ts-expect-error: names are in an array
  await counters.getMany("a");
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

ENDS = """
const { Worker, isMainThread, workerData } = require("node:worker_threads");
const cluster = require("node:cluster");
const { once } = require("node:events");
const http = require("node:http");
const { Client } = require("countersink");

async function main() {
  const server = http.createServer(async (request, answer) => {
    let body = "";
    for await (const piece of request) body += piece;
    if (request.method === "GET") return answer.write("retry: 1000\\n\\n"); // a stream without an end
    console.log(body);
    answer.end('{"accepted": 1, "receipt": "r"}');
  });
  await once(server.listen(0), "listening");
  const url = `http://127.0.0.1:${server.address().port}`;
  await once(new Worker(__filename, { workerData: url }), "exit");
  await once(cluster.fork({ SERVICE: url }), "exit");
  const abort = new AbortController();
  setTimeout(() => abort.abort(), 50);
  try {
    for await (const counter of new Client(url).watch("a", { signal: abort.signal }));
  } catch (error) {
    console.log(error.name);
  }
  server.close();
}

function count(name, url) {
  const counters = new Client(url, { interval: 3_600_000 });
  counters.incr(name);
  if (cluster.isWorker) cluster.worker.disconnect();
}

if (!isMainThread) count("thread", workerData);
else if (cluster.isWorker) count("worker", process.env.SERVICE);
else main();
"""


LATE = """
const { createServer } = require("node:http");
const { Client } = require("countersink");

let counted = 0;
const server = createServer(async (request, response) => {
  let body = "";
  for await (const part of request) body += part;
  for (const delta of Object.values(JSON.parse(body).counters)) counted += delta;
  response.writeHead(202, { "Content-Type": "application/json" });
  response.end('{"accepted":1,"rejected":[],"receipt":"r"}');
});
server.listen(0, "127.0.0.1", () => {
  server.unref();
  const counters = new Client(`http://127.0.0.1:${server.address().port}`, { interval: 50 });
  process.once("beforeExit", () => {
    let left = 20;
    const timer = setInterval(() => {
      counters.incr("late");
      if (!--left) clearInterval(timer);
    }, 5);
  });
  process.on("exit", () => console.log(counted, counters.dropped));
  counters.incr("early");
});
"""
"""A program that counts on after it seemed to have ended."""


@pytest.fixture
def project(built: Callable[[str], Path]) -> Path:
    """A project in which nothing but the package for Node is installed."""
    return built("node")


def described() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((NODE / "package.json").read_text())
    return found


def test_the_package_for_node_holds_its_files_and_needs_nothing(project: Path) -> None:
    there = {path.name for path in (project / "node_modules" / "countersink").iterdir()}
    assert there == {"LICENSE", "README.md", "package.json", *described()["files"]}
    assert [path.name for path in (project / "node_modules").iterdir() if path.name[0] != "."] == ["countersink"]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert described()["version"] == version.replace(".dev", "-dev.")  # as npm wants it
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


def test_threads_and_workers_send_what_they_counted_and_a_stream_can_be_ended(project: Path) -> None:
    (project / "ends.cjs").write_text(ENDS)
    said = run(program("node"), "ends.cjs", cwd=project).splitlines()
    assert said == ['{"counters":{"thread":1}}', '{"counters":{"worker":1}}', "AbortError"]


def test_what_a_program_counts_when_it_seems_to_have_ended_is_sent(project: Path) -> None:
    (project / "late.cjs").write_text(LATE)
    assert run(program("node"), "late.cjs", cwd=project) == "21 0\n"


def test_its_types_are_right(project: Path) -> None:
    """As TypeScript reads them in modules of both kinds."""
    for name in ("typed.mts", "typed.cts"):
        (project / name).write_text(TYPED)
    options = ("--noEmit", "--strict", "--target", "es2022", "--module", "node16", "--moduleResolution", "node16")
    run(program("tsc"), *options, "typed.mts", "typed.cts", cwd=project)


def test_its_types_name_all_that_it_has() -> None:
    """Each method of the class is declared, and nothing else."""
    code, types = [(NODE / name).read_text().partition("class Client")[2] for name in ("index.js", "index.d.ts")]
    methods = re.findall(r"^  (?:async )?(?:get )?\*?(\w+)\(.*\{$", code.partition("\n}")[0], re.MULTILINE)
    declared = re.findall(r"^  (?:readonly )?(\w+)[(:]", types.partition("\n}")[0], re.MULTILINE)
    assert methods == declared


@pytest.fixture
def module(built: Callable[[str], Path]) -> Path:
    """A module of Go that requires nothing but the client's."""
    return built("go")


def test_the_module_for_go_is_clean_and_needs_nothing(module: Path) -> None:
    there = ROOT / "clients" / "go"
    assert run(program("gofmt"), "-l", there, ROOT / "clients" / "conformance") == ""
    assert run(program("go"), "list", "-m", "all", cwd=there, more=GO) == "countersink\n"
    run(program("go"), "vet", ".", "countersink", cwd=module, more=GO)
    run(program("go"), "test", "./...", cwd=there, more=GO)


def first_program(language: str, client: str) -> str:
    page = (ROOT / "clients" / client / "README.md").read_text()
    return page.partition(f"```{language}\n")[2].partition("```\n")[0]


@pytest.mark.parametrize("client", ["node", "go"])
async def test_the_first_program_of_its_page_counts(
    client: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = tmp_path / "program"
    shutil.copytree(request.getfixturevalue({"node": "project", "go": "module"}[client]), folder)
    async with processes(tmp_path / "data", tmp_path / "log") as started:
        service = await started.start("up", "--port", "0")
        text = first_program({"node": "js", "go": "go"}[client], client).replace("http://127.0.0.1:8080", service.url)
        name, *command = {"node": ("first.mjs", "node", "first.mjs"), "go": ("driver.go", "go", "run", ".")}[client]
        (folder / name).write_text(text)
        said = await asyncio.to_thread(run, program(command[0]), *command[1:], cwd=folder, more=GO)
    assert said == "1\n"

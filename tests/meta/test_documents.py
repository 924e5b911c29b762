"""What is written down agrees with the code: settings, version, links, paths."""

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from countersink_server.cli import main
from ingest.access.keys import SCOPES
from ingest.api.routes import ROUTES
from shared.config.settings import table
from shared.runtime.metrics import REGISTRY
from tests.meta.checkout import ROOT, tracked

LINK: Final = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
OF_A_MACHINE: Final = re.compile(r"(?<![\w.:/-])/(?:home|root|Users|tmp|work|farm|mnt)/\w")


def settings_in(text: str) -> list[tuple[str, str, str]]:
    """Rows of the table of settings."""
    rows = re.findall(r"^\| `(COUNTERSINK_\w+)` \| `?([^|`]*)`? \| (.*) \|$", text, re.MULTILINE)
    return [(name, default, help_) for name, default, help_ in rows]


def operations_in(text: str) -> list[tuple[str, str]]:
    """Rows of the table of requests."""
    return re.findall(r"^\| `([A-Z]+) (/[^`]*)` \|", text, re.MULTILINE)


def dead_links(file: Path, text: str) -> list[str]:
    targets = [target for target in LINK.findall(text) if "://" not in target]
    return [target for target in targets if not (file.parent / target).exists()]


def paths_of_machines(text: str) -> list[str]:
    return [line for line in text.splitlines() if OF_A_MACHINE.search(line)]


def texts(paths: Iterable[Path]) -> Iterable[tuple[Path, str]]:
    for path in paths:
        try:
            yield path, path.read_text()
        except UnicodeDecodeError:
            continue  # a picture


def test_the_settings_are_listed() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    assert settings_in(text) == table()
    assert settings_in(text.replace("`20`", "`21`")) != table()


def test_the_readme_names_each_setting() -> None:
    text = (ROOT / "README.md").read_text()
    assert sorted(re.findall(r"`(COUNTERSINK_\w+)`", text)) == sorted(name for name, _, _ in table())


def test_the_metrics_are_listed() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    shown = re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \| (.*) \|$", text, re.MULTILINE)
    suffixes = {"counter": "_total"}
    ours = [(one.name + suffixes.get(one.type, ""), one.type, one.documentation) for one in REGISTRY.collect()]
    assert shown == sorted(ours)
    section = text.partition("## Which mean lost data")[2]
    lost = {name for name, _, help_ in ours if re.search(r"LOST|were lost|NOT counted", help_)}
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == lost


def test_the_commands_are_listed() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    (commands,) = [action for action in main.parser_of_all()._actions if isinstance(action, argparse._SubParsersAction)]
    assert set(re.findall(r"^\| `countersink ([a-z]+)", text, re.MULTILINE)) == set(commands.choices)


def test_the_requests_are_listed() -> None:
    text = "".join((ROOT / "docs" / page).read_text() for page in ("http.md", "reading.md", "http-admin.md"))
    assert sorted(operations_in(text)) == sorted((route.method, route.path) for route in ROUTES if route.tag)
    assert operations_in("| `PUT /v1/no` | nothing |") == [("PUT", "/v1/no")]


def test_the_scopes_are_listed() -> None:
    section = (ROOT / "docs" / "access.md").read_text().partition("| scope | requests |")[2]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [*SCOPES]


def test_links_lead_somewhere() -> None:
    documents = [path for path in tracked() if path.suffix == ".md"]
    assert {path.name: dead_links(path, text) for path, text in texts(documents)} == {
        path.name: [] for path in documents
    }
    assert dead_links(ROOT / "README.md", "[a](no/such.md) [b](LICENSE)") == ["no/such.md"]


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    found = [f"{path.relative_to(ROOT)}: {line}" for path, text in texts(tracked()) for line in paths_of_machines(text)]
    assert not found
    assert paths_of_machines("see /" + "home/me")
    assert not paths_of_machines("http://example.com/" + "home/me")

"""What is written down agrees with the code: settings, requests, links, paths, names, limits, and prices."""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from countersink_server.cli.main import parser_of_all
from ingest.accept.drafts import MAX_ENTRIES
from ingest.access.keys import SCOPES
from ingest.api.routes import ROUTES
from ingest.parsing.parse import MOST_IN_BATCH
from shared.config.settings import Settings, table
from shared.model.words import MAX_DELTA, MAX_ID_BYTES, MAX_NAME_BYTES
from shared.runtime.metrics import REGISTRY
from shared.wire.codec import MAX_ITEMS
from tests.meta.checkout import ROOT, product, tracked

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
    (commands,) = [action for action in parser_of_all()._actions if isinstance(action, argparse._SubParsersAction)]
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


LIMIT: Final = re.compile(r"^(M(?:OST|AX)_\w+)\b.* = ", re.MULTILINE)
NAME: Final = re.compile(r"`([A-Za-z]*[a-z][A-Z]\w*|(?!COUNTERSINK_)\w*[A-Za-z]_\w+|_\w+|[A-Z]{3,})(?:\(\))?`")


def test_a_limit_has_one_name_and_one_place() -> None:
    server = [path for path in product() if path.suffix == ".py" and ROOT / "countersink" not in path.parents]
    found = Counter(name for path in server for name in LIMIT.findall(path.read_text()))
    assert [name for name, places in found.items() if places > 1] == []
    assert len(found) > 100


def test_contributing_names_what_is_in_the_files_that_it_links() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for entry in re.split(r"\n(?=- \*\*|\n|\d\. )", text):
        linked = tuple(str(ROOT / link) for link in LINK.findall(entry))
        files = [path for path in tracked() if str(path).startswith(linked)] if linked else []
        words = {word for path in files for word in re.findall(r"\w+", path.read_text(errors="ignore"))}
        assert not linked or not {*NAME.findall(entry)} - words, entry


SIZING: Final = (ROOT / "docs" / "sizing.md").read_text()
LIMITS: Final = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]*\|$", SIZING.partition("## Limits")[2], re.MULTILINE))


def test_limits_are_those_of_the_code() -> None:
    defaults = Settings()
    assert {
        "name of a counter": f"{MAX_NAME_BYTES} bytes",
        "id of an increment, `Idempotency-Key`": f"{MAX_ID_BYTES:,} bytes",
        "increments in one request or message": f"{MAX_ITEMS:,}",
        "counters in a batch under an `Idempotency-Key`": f"{MAX_ENTRIES:,}",
        "body of a request": f"{defaults.max_body_bytes >> 20} MiB",
        "increments that wait in one ingest": f"{defaults.max_waiting:,}",
        "pending increments of a SQLite file": f"{defaults.max_pending_bytes >> 20} MiB",
        "connections of one ingest": f"{defaults.max_connections:,}",
    }.items() <= LIMITS.items()
    assert MAX_DELTA == 2**53 - 1
    assert MOST_IN_BATCH == MAX_ITEMS  # else the page needs a row for each


COMPARISON: Final = (ROOT / "docs" / "comparison.md").read_text()
README: Final = (ROOT / "README.md").read_text()
BILL: Final = dict(
    re.findall(r"^\| \**([^|]+?)\** \| (.+) \|$", COMPARISON.partition("## What a month costs")[2], re.MULTILINE)
)
RATES: Final = (10, 1_000, 100_000)
SECONDS: Final = 30 * 24 * 3_600


def plan(capsys: pytest.CaptureFixture[str], rate: float, counters: int = 20, ids: str = "none") -> Any:
    options = parser_of_all().parse_args(
        ["plan", "--rate", str(rate), "--counters", str(counters), "--ids", ids, "--json"]
    )
    options.run(options)
    return json.loads(capsys.readouterr().out)


def dollars(low: Any, high: Any) -> str:
    """From the lower of one to the higher of the other."""
    return f"${low['dollars_a_month'][0]:,.0f} - ${high['dollars_a_month'][1]:,.0f}"


def test_our_bill_is_that_of_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plans = [plan(capsys, rate) for rate in RATES]
    with_ids = [plan(capsys, rate, ids="each") for rate in RATES]
    ours = [dollars(one["while_unread"], one["while_read"]) for one in plans]
    assert BILL["Countersink on Datastore"].split(" | ") == ours
    ids = [dollars(one["while_unread"], one["while_read"]) for one in with_ids]
    assert BILL["the same, each increment with an id"].split(" | ") == ids
    originals = [dollars(one["original"], one["original"]) for one in plans]
    assert BILL["Google's example of a sharded counter"].split(" | ") == originals
    nodes = [one["bigtable"]["nodes"] for one in plans]
    assert BILL["Bigtable"].split(" | ") == [f"{one} node{'s' if one > 1 else ''}" for one in nodes]
    assert [one["ingests"] + one["flushers"] for one in plans] == [4, 4, 7]
    many = plan(capsys, 1_000, counters=1_000)
    assert dollars(many["while_unread"], many["while_read"]) in COMPARISON
    small = plan(capsys, 50)
    assert dollars(small["while_unread"], small["while_read"]) in README


def test_the_bill_of_dynamodb_is_arithmetic() -> None:
    once = [f"${rate * SECONDS / 1e6 * 0.625:,.0f}" for rate in RATES]
    assert BILL["DynamoDB, on demand"].split(" | ") == once
    assert BILL["the same, in transactions with a token"].split(" | ") == ["$32", "$3,240", "$324,000"]

"""countersink import reads what countersink map exports: totals once, later only what was added."""

import json
from pathlib import Path

import pytest

from shared.model.errors import SettingsError
from shared.model.imports import Foreign
from shared.moving.export_file import ExportSource
from tests.cli.running import make_file, run

LARGE = 3 * 2**63


def line(name: str, value: int, **more: object) -> str:
    return json.dumps({"name": name, "value": value, **more}) + "\n"


async def told(file: Path, prefix: str = "") -> list[Foreign | str]:
    return [one async for one in ExportSource(file).counters(prefix)]


async def test_each_line_is_a_counter_and_totals_may_be_large(tmp_path: Path) -> None:
    file = tmp_path / "export"
    file.write_text(line("a", 5) + line("b\u00fc", -LARGE) + line("c", 1, by="hour", points=[], total=0))
    assert await told(file) == [Foreign("a", 5), Foreign("b\u00fc", -LARGE), Foreign("c", 1)]
    assert await told(file, "b") == [Foreign("b\u00fc", -LARGE)]
    source = ExportSource(file)
    assert (await source.counter("a"), await source.counter("d")) == (Foreign("a", 5), None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (line("a", 1) + line("b", 1)[:-1], 'line 2: is no line of an export, .* A line is {"name": '),
        (line("a", 1) + "\n", "line 2: is no line"),
        ('{"name": "a", "value": 1.0}\n', "line 1: is no line"),
        ('{"name": "a", "value": true}\n', "line 1: is no line"),
        ('{"value": 1}\n', "line 1: is no line"),
        ("[1]\n", "line 1: is no line"),
        ("[" * 10**5 + "\n", "line 1: is no line"),
        (line("a", 1) + line("b", 1) + line("a", 1), "line 3: 'a' appears twice, so nothing was imported"),
    ],
)
async def test_a_file_that_is_not_whole_is_refused_before_anything_is_told(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "export"
    file.write_text(text)
    with pytest.raises(SettingsError, match=why):
        await told(file)


async def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        await told(tmp_path / "export")


def test_a_file_that_is_not_there_is_not_tried_again(tmp_path: Path) -> None:
    make_file(tmp_path)
    for command in (
        ("import", "--variant", "export", "--from", "x.ndjson", "--data", ".countersink"),
        ("copy", "--from", "x.ndjson", "--to", "sqlite:///.countersink/countersink.db"),
    ):
        done = run(*command, cwd=tmp_path)
        assert (done.code, len(done.lines)) == (1, 1)
        assert "x.ndjson cannot be read: No such file or directory (" in done.lines[0]
        assert "run it again" not in done.lines[0]


def test_what_one_file_counted_is_in_another_and_a_later_export_adds_the_difference(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        assert run("provision", "--data", folder, cwd=tmp_path, COUNTERSINK_EXISTING="yes").code == 0
    # `set` and `map` work on the data themselves.
    for total in (5, 12):
        assert run("set", "account:a", f"{total}", "--data", "one", cwd=tmp_path).code == 0
        assert run("map", "--prefix", "account:", "--export", "x.ndjson", "--data", "one", cwd=tmp_path).code == 0
        for added in (total - (0 if total == 5 else 5), 0):
            done = run("import", "--variant", "export", "--from", "x.ndjson", "--data", "two", "--json", cwd=tmp_path)
            assert (done.code, json.loads(done.out.splitlines()[-1])["added"]) == (0, added), done
    assert run("get", "account:a", "--data", "two", cwd=tmp_path).out.split()[-1] == "12"
    for _ in range(2):  # what a reset took away comes back
        reset = ("map", "--prefix", "", "--reset", "--export", "taken.ndjson", "--data", "two", "--job", "j")
        assert run(*reset, cwd=tmp_path).code == 0
        assert run("import", "--variant", "export", "--from", "taken.ndjson", "--data", "two", cwd=tmp_path).code == 0
    assert run("get", "account:a", "--data", "two", cwd=tmp_path).out.split()[-1] == "12"
    assert run("audit", "--data", "two", cwd=tmp_path).code == 0

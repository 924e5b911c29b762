"""countersink import: what it refuses, how it says what came of it, and that it reads what exports write, wherever."""

import contextlib
import io
import json
import os
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from countersink_server.cli.imports import MOST_LEFT_OUT, Report
from countersink_server.cli.main import main
from countersink_server.cli.output import check, written_to
from countersink_server.move.importer import ImportOutcome
from shared.config.settings import Settings
from shared.config.urls import Datastore
from shared.model.errors import CountersinkError, SettingsError
from shared.model.moving import VARIANTS, Foreign
from shared.moving.ours import ExportSource
from shared.wiring.moving import name_of, refuse_ours
from tests.cli.running import make_file, run

PLACE = Datastore("p", "", "old")
SAME = "datastore://p?namespace=old"
"""The same place."""
CLOUD = "pubsub://p/topic?subscription=sub"


def said(report: Report) -> list[str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        report.take(ImportOutcome("a", 7, 5))
        report.take(ImportOutcome("b", 7, 0))
        report.take(ImportOutcome("c", 0, 0, "it is odd"))
        report.take(ImportOutcome("d\n\x1b", 1, -2))
        report.take("Shard 7 is left out")
        report.end()
    return out.getvalue().splitlines()


def test_only_what_was_not_imported_is_shown() -> None:
    assert said(Report(False, all_=False, dry=False)) == [
        "c  NOT imported: it is odd",
        "Shard 7 is left out",
        "counters: 4; added to 2 of them, +3 in all; 1 unchanged, 1 not imported",
        "left out: 1, see above",
    ]


def test_all_are_shown_when_it_is_asked_for() -> None:
    lines = said(Report(False, all_=True, dry=False))
    assert lines[:4] == ["a  +5", "b  unchanged", "c  NOT imported: it is odd", "d\\n\\x1b  -2"]


def test_a_dry_run_shows_what_would_be_added() -> None:
    lines = said(Report(False, all_=False, dry=True))
    assert lines[:3] == ["a  +5", "c  NOT imported: it is odd", "d\\n\\x1b  -2"]
    assert lines[-2] == "counters: 4; would be added to 2 of them, +3 in all; 1 unchanged, 1 not imported"


def test_json_is_one_object_a_line() -> None:
    told = [json.loads(line) for line in said(Report(True, all_=True, dry=False))]
    assert told[0] == {"name": "a", "there": 7, "added": 5, "why_not": None}
    assert told[2] == {"name": "c", "there": 0, "added": 0, "why_not": "it is odd"}
    assert told[4] == {"left_out": "Shard 7 is left out"}
    counters = {"found": 4, "added": 2, "unchanged": 1, "refused": 1}
    assert told[5] == {"counters": counters, "added": 3, "left_out": 1, "dry_run": False}


def test_of_very_many_that_are_left_out_a_few_are_shown() -> None:
    report = Report(False, all_=False, dry=False)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for number in range(1_000):
            report.take(f"Shard {number} is left out")
    assert len(out.getvalue().splitlines()) == MOST_LEFT_OUT
    assert report.left_out == 1_000


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "the following arguments are required: --variant, --from"),
        (["--variant", "cobol"], "invalid choice: 'cobol'"),
        (["--variant", "php"], "argument --kind: php needs it"),
        (["--variant", "go", "--kind", "K"], "argument --kind: the kinds of go have names of their own"),
        (["--variant", "simple"], "argument --name: simple needs one"),
        (["--variant", "simple", "--name", "a", "--name", "b"], "argument --name: simple needs one"),
        (["--variant", "go", "--name", "n"], "argument --name: counters of go have names"),
        (["--variant", "export", "--match", "a*"], "argument --match: export has no keys to match"),
        (["--variant", "firestore-counter"], "argument --field: firestore-counter needs it"),
        (["--variant", "export", "--field", "visits"], "argument --field: export has no fields"),
        (["--variant", "export", "--kind", "K"], "argument --kind: export has no kinds"),
        (["--variant", "export", "--name", "n"], "argument --name: counters of export have names"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["import", *arguments, *(["--from", "datastore://p"] if arguments else [])])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("url", ["p", "sqlite:///x", "datastore://", "datastore://p/d/e", "datastore://p?name=x"])
def test_a_wrong_place_is_one_line(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.db"
    file.touch()
    monkeypatch.setenv("COUNTERSINK_BROKER", f"sqlite:///{file}")
    with pytest.raises(SystemExit, match=r"--from='.*': must be datastore://PROJECT"):
        main(["import", "--variant", "go", "--from", url])


@pytest.mark.parametrize(
    ("variant", "store", "kinds", "why"),
    [
        ("ndb", SAME, {}, "are the same place"),
        ("ndb", "datastore://p/(default)?namespace=old", {}, "are the same place"),
        ("ndb", SAME, {"kind_shard": "Ours"}, "GeneralCounterShardConfig of ndb would also be"),
        ("go", SAME, {}, "GeneralCounterShard and GeneralCounterShardConfig of go would"),
        ("java", SAME, {"kind_config": "CounterShard_x"}, "CounterShard_x of java would also be"),
        ("java", SAME, {"kind_shard": "Counter"}, "Counter of java would also be"),
        ("simple", SAME, {"kind_config": "SimpleCounterShard"}, "of simple would also be"),
    ],
)
def test_data_of_kinds_that_are_ours_is_not_imported(variant: str, store: str, kinds: dict[str, Any], why: str) -> None:
    settings = Settings(broker=CLOUD, store=store, **kinds)
    one = VARIANTS[variant]
    with pytest.raises(SettingsError, match=why):
        refuse_ours(settings, one, PLACE, one.kinds())


@pytest.mark.parametrize(
    ("variant", "store", "kinds"),
    [
        ("ndb", "datastore://p", {}),
        ("ndb", "datastore://p/other?namespace=old", {}),
        ("ndb", "datastore://q?namespace=old", {}),
        ("ndb", "", {}),
        ("java", SAME, {}),
        ("go", SAME, {"kind_config": "OurConfig", "kind_shard": "OurShard"}),
    ],
)
def test_data_elsewhere_or_of_other_kinds_is(variant: str, store: str, kinds: dict[str, Any]) -> None:
    one = VARIANTS[variant]
    refuse_ours(Settings(store=store, **kinds), one, PLACE, one.kinds())


def test_the_name_of_a_source_is_that_of_the_data() -> None:
    names = [
        name_of(VARIANTS["go"], Datastore("p", "", ""), ""),
        name_of(VARIANTS["db"], Datastore("p", "", ""), ""),
        name_of(VARIANTS["go"], Datastore("p", "d", ""), ""),
        name_of(VARIANTS["go"], Datastore("p", "", "d"), ""),
        name_of(VARIANTS["acc"], Datastore("p", "", "d"), ""),
        name_of(VARIANTS["acc"], Datastore("p", "", "d"), "Other"),
    ]
    assert names[0] == "go datastore://p/(default)"
    assert names[5] == "acc datastore://p/(default)?namespace=d Other"
    assert len({*names}) == len(names)
    assert name_of(VARIANTS["acc"], Datastore("p", "", "d"), "AccVals") == names[4]


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
        ('{"name": "a", "value": 1.0}\n', "line 1: the value of 'a' must be a whole number, is 1.0, so nothing"),
        ('{"name": "a", "value": "2"}\n', "line 1: the value of 'a' must be a whole number, is '2', so nothing"),
        (
            f'{{"name": "a", "value": {10**23}}}\n',
            "line 1: the value of 'a' is larger than a counter can be, so nothing",
        ),
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
        assert "x.ndjson cannot be read: No such file or directory" in done.lines[0]
        assert command[0] == "copy" or (done.out, done.lines[0][-9:]) == ("", "directory")
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


async def chunks(*, fail: bool = False) -> AsyncIterator[bytes]:
    yield b"first\n"
    if fail:
        raise OSError(28, "No space left on device")
    yield b"second\n"


async def test_it_is_there_when_all_of_it_is(tmp_path: Path) -> None:
    file = tmp_path / "export"
    file.write_bytes(b"old")
    with pytest.raises(CountersinkError, match="can't be written: No space left on device"):
        await written_to(str(file), chunks(fail=True))
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [file.name]  # noqa: PTH208 (nobody else waits)
    check(str(file))
    await written_to(str(file), chunks())
    assert file.read_bytes() == b"first\nsecond\n"
    assert os.listdir(tmp_path) == [file.name]  # noqa: PTH208 (nobody else waits)


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
async def test_a_file_keeps_its_mode_and_a_new_one_is_its_owners(tmp_path: Path, umask: int) -> None:
    shared, new = tmp_path / "shared", tmp_path / "new"
    shared.touch()
    shared.chmod(0o640)
    before = os.umask(umask)
    try:
        for file in (shared, new):
            await written_to(str(file), chunks())
    finally:
        os.umask(before)
    assert [stat.S_IMODE(file.stat().st_mode) for file in (shared, new)] == [0o640, 0o600]


async def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (link := tmp_path / "link").symlink_to(folder / "real")
    check(str(link))
    await written_to(str(link), chunks())
    assert link.is_symlink()
    assert (folder / "real").read_bytes() == b"first\nsecond\n"


async def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    check(str(pipe))
    await written_to(str(pipe), chunks())
    reader.join(10)
    assert read == [b"first\nsecond\n"]
    assert pipe.is_fifo()


async def test_what_is_called_like_a_part_of_it_stays(tmp_path: Path) -> None:
    (other := tmp_path / "export.part").write_bytes(b"mine")
    await written_to(str(tmp_path / "export"), chunks())
    assert other.read_bytes() == b"mine"

"""countersink import: what it refuses before it reads anything, and how it says what came of it."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from countersink_server.cli.imports import MOST_LEFT_OUT, Report
from countersink_server.cli.main import main
from countersink_server.move.importer import ImportOutcome
from shared.config.settings import Settings
from shared.config.urls import Datastore
from shared.model.errors import SettingsError
from shared.model.imports import VARIANTS
from shared.wiring.datastore import name_of, refuse_ours

PLACE = Datastore("p", "", "old")
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
        "left out: 1 entity that the other application does not count either",
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
        ("ndb", "datastore://p?namespace=old", {}, "are the same place"),
        ("ndb", "datastore://p/(default)?namespace=old", {}, "are the same place"),
        (
            "ndb",
            "datastore://p?namespace=old",
            {"kind_shard": "Ours"},
            "GeneralCounterShardConfig of ndb would also be",
        ),
        ("go", "datastore://p?namespace=old", {}, "GeneralCounterShard and GeneralCounterShardConfig of go would"),
        (
            "java",
            "datastore://p?namespace=old",
            {"kind_config": "CounterShard_x"},
            "CounterShard_x of java would also be",
        ),
        ("java", "datastore://p?namespace=old", {"kind_shard": "Counter"}, "Counter of java would also be"),
        ("simple", "datastore://p?namespace=old", {"kind_config": "SimpleCounterShard"}, "of simple would also be"),
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
        ("java", "datastore://p?namespace=old", {}),
        ("go", "datastore://p?namespace=old", {"kind_config": "OurConfig", "kind_shard": "OurShard"}),
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

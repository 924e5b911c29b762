"""map: something is done to each counter under a prefix, by a service or by the command itself."""

import json
import signal
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from countersink_server.cli.main import main
from shared.model.errors import TransientError
from shared.model.jobs import JobState
from shared.sqlite.jobs import SqliteJobs
from tests.cli.running import COUNTERSINK, Done, environment, run, service

WINDOWS = "by itself=hour/90d;by the service=hour/90d"


class Place:
    """A service, and its file for who goes by the settings."""

    def __init__(self, url: str, file: Path) -> None:
        self.url = url
        self.settings = {"COUNTERSINK_BROKER": f"sqlite:///{file}", "COUNTERSINK_WINDOWS": WINDOWS}

    def __call__(self, *arguments: str) -> Done:
        return run(*arguments, cwd=None, **self.settings)

    def total(self, name: str) -> int:
        return int(self._get(name)["value"])

    def count(self, *names: str) -> None:
        """Until it is applied."""
        for name in names:
            with urlopen(f"{self.url}/v1/counters/{quote(name, safe='')}?wait=applied", data=b"") as response:
                assert response.status == 200

    def _get(self, name: str) -> Any:
        with urlopen(f"{self.url}/v1/counters/{quote(name, safe='')}?max_age=0") as response:
            return json.load(response)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One for all: each test has a prefix of its own."""
    data = tmp_path_factory.mktemp("data")
    with service(data, COUNTERSINK_CACHE_TTL="0", COUNTERSINK_WINDOWS=WINDOWS) as up:
        yield Place(up.url, data / "countersink.db")


@pytest.fixture(params=["itself", "the service"])
def by(request: pytest.FixtureRequest) -> str:
    """The command does the job itself, or asks the service to."""
    return str(request.param)


@pytest.fixture
def how(place: Place, by: str) -> list[str]:
    """The arguments that say so."""
    return ["--url", place.url] if by == "the service" else []


def test_each_counter_under_the_prefix_gets_it_once(place: Place, by: str, how: list[str]) -> None:
    prefix = f"{by}:"
    place.count(f"{prefix}a", f"{prefix}b", f"other than {prefix}")
    done = place("map", "--prefix", prefix, "--add", "10", *how)
    assert done.code == 0, done
    (noted,) = done.lines
    id_ = noted.removeprefix("job ")
    assert done.out.startswith(f"job {id_} done: counters visited 2, changed 2, failed 0; pages 1, rounds 1, ")
    again = place("map", "--prefix", prefix, "--add", "10", "--job", id_, "--json", *how)
    assert (again.code, len(again.lines)) == (0, 1)
    assert again.lines[0].startswith(f"job {id_} had ended before at 20")
    assert again.lines[0].endswith("Z: this is its result, and nothing is done again")
    said = json.loads(again.out)
    assert (said["id"], said["state"], said["changed"], said["delta"], said["examples"]) == (id_, "done", 2, 10, [])
    assert said["started"].endswith("Z")
    assert [place.total(name) for name in (f"{prefix}a", f"{prefix}b", f"other than {prefix}")] == [11, 11, 1]


def test_counters_are_exported_reset_and_deleted(place: Place, by: str, how: list[str], tmp_path: Path) -> None:
    prefix = f"all by {by}:"
    place.count(f"{prefix}a", f"{prefix}b")
    how = ["--prefix", prefix, *how]
    file = tmp_path / "export"
    assert place("map", *how, "--export", str(file)).code == 0
    assert [tuple(json.loads(line).values()) for line in file.read_text().splitlines()] == [
        (f"{prefix}a", 1),
        (f"{prefix}b", 1),
    ]
    assert [*tmp_path.iterdir()] == [file]
    reset = place("map", *how, "--reset", "--json", "--export", str(file))
    assert reset.code == 0
    taken = "".join(f'{{"name":"{prefix}{name}","before":1}}\n' for name in "ab")
    assert file.read_text() == taken
    assert "missing" not in "".join(reset.lines)
    id_ = json.loads(reset.out)["id"]
    with urlopen(f"{place.url}/v1/jobs/{id_}") as response:
        assert json.loads(reset.out) == json.load(response)
    shown = place("map", *how, "--export", "-")
    assert shown.out == "".join(f'{{"name":"{prefix}{name}","value":0}}\n' for name in "ab")
    deletes = (*how, "--delete", "--job", f"delete-{'s' if by == 'the service' else 'i'}")
    for _ in range(2):  # it may have been interrupted, and deleted what nobody can count any more
        done = place("map", *deletes)
        assert done.code == 0
        assert "may be missing in these numbers" in done.lines[-1]
    assert place("map", *deletes, "--export", "-").out == taken.replace("1}", "0}")
    assert run("list", "--prefix", prefix, "--url", place.url, cwd=None).out == ""


def test_counters_are_compacted(place: Place, by: str, how: list[str]) -> None:
    prefix = f"shards by {by}:"
    place.count(f"{prefix}a", f"{prefix}b")
    assert run("shards", f"{prefix}a", "5", "--url", place.url, cwd=None).code == 0
    done = place("map", "--prefix", prefix, "--compact", "2", "--json", *how)
    assert done.code == 0, done
    said = json.loads(done.out)
    assert (said["kind"], said["shards"], said["visited"], said["changed"]) == ("compact", 2, 2, 1)
    with urlopen(f"{place.url}/v1/counters/{quote(f'{prefix}a')}") as response:
        assert json.load(response)["shards"] == 2


def test_only_what_was_not_changed_for_long_is_deleted(place: Place, by: str, how: list[str]) -> None:
    prefix = f"unused by {by}:"
    place.count(f"{prefix}a", f"{prefix}b")
    done = place("map", "--prefix", prefix, "--delete", "--unused-for", "1y", "--json", *how)
    assert done.code == 0, done
    said = json.loads(done.out)
    assert (said["kind"], said["days"], said["visited"], said["changed"]) == ("expire", 366, 0, 0)


def test_counts_by_time_are_exported(place: Place, by: str, how: list[str], tmp_path: Path) -> None:
    prefix, file = f"by {by}", tmp_path / "export"
    place.count(f"{prefix}:a", f"{prefix}:b")
    how = ["--by", "hour", "--from", "2026-01-01T02:00:00+02:00", "--json", *how]
    done = place("map", "--prefix", prefix, "--export", str(file), *how)
    assert (done.code, len(done.lines)) == (0, 1), done
    told = json.loads(done.out)
    assert (told["by"], told["from"], told["to"]) == ("hour", "2026-01-01T00:00:00.000Z", None)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["name"], line["value"], line["total"]) for line in lines] == [
        (f"{prefix}:a", 1, 1),
        (f"{prefix}:b", 1, 1),
    ]
    refused = place("map", "--prefix", "other", "--export", str(file), *how)
    assert refused.code == 1
    assert "counts by hour are not kept under the prefix 'other'" in refused.lines[-1]
    its_own = "This command goes by its own environment: set COUNTERSINK_WINDOWS as for the service, or use --url"
    assert (its_own in refused.lines[-1]) == (by == "itself")
    totals = place("map", "--prefix", prefix, "--export", str(file), "--json", *how[5:])
    assert not {"by", "from", "to"} & json.loads(totals.out).keys()


def test_a_file_that_can_not_be_written_is_said_before_anything_is_done(
    place: Place, how: list[str], tmp_path: Path
) -> None:
    for file, why in (
        (tmp_path / "no" / "file", f"the folder {tmp_path}/no does not exist: make it first"),
        (tmp_path, "Is a directory"),
    ):
        assert f"can't be written: {why}" in place("map", "--prefix", "none:", "--export", str(file), *how).refusal


def test_another_job_of_that_id_is_refused(place: Place, by: str, how: list[str]) -> None:
    id_ = f"other-{len(by)}"
    assert place("map", "--prefix", "none:", "--add", "1", "--job", id_, *how).code == 0
    refused = place("map", "--prefix", "none:", "--add", "2", "--job", id_, *how).refusal
    assert f"the id '{id_}' belongs to another job" in refused


@pytest.mark.parametrize(
    "wrong",
    [
        ["--add", "1"], ["--prefix", "p"], ["--prefix", "p", "--add", "x"],
        ["--prefix", "p", "--add", "1", "--reset"], ["--prefix", "p", "--compact", "0"],
        ["--prefix", "p", "--export", "-", "--json"], ["--prefix", "p", "--add", "1", "--export", "f"],
        ["--prefix", "p", "--add", "9007199254740992"],
        ["--prefix", "p", "--add", "1", "--unused-for", "1d"], ["--prefix", "p", "--delete", "--unused-for", "12h"],
        ["--prefix", "p", "--delete", "--unused-for", "long"],
        ["--prefix", "p", "--add", "1", "--by", "hour"], ["--prefix", "p", "--export", "f", "--by", "week"],
        ["--prefix", "p", "--export", "f", "--to", "2026-01-01T00:00:00Z"],
        ["--prefix", "p", "--export", "f", "--by", "hour", "--from", "yesterday"],
        ["--prefix", "p", "--add", "1", "--job", "a/b"], ["--prefix", "p", "--add", "1", "--concurrency", "0"],
        ["--prefix", "p", "--add", "1", "--concurrency", "2", "--url", "http://127.0.0.1:1"],
        ["--prefix", "p", "--add", "1", "--url", "127.0.0.1"],
    ],
)  # fmt: skip
def test_what_is_said_wrong_is_2(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["map", *wrong])
    assert ended.value.code == 2


@pytest.mark.parametrize("unused", ["12h", "1m", "0d", "d"])
def test_for_how_long_counters_are_unused_has_one_rule(unused: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["map", "--prefix", "p", "--delete", "--unused-for", unused])
    said = "argument --unused-for: must be whole days or years, as in 90d or 2y, and at most "
    assert said in capsys.readouterr().err


def test_a_look_that_fails_does_not_end_what_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.count("looked:a", "looked:b")
    looks, get = count(), SqliteJobs.get

    async def now_and_then(jobs: SqliteJobs, job: str) -> JobState | None:
        if next(looks) % 2:
            raise TransientError("another program has locked it")
        return await get(jobs, job)

    monkeypatch.setattr(SqliteJobs, "get", now_and_then)
    monkeypatch.setenv("COUNTERSINK_BROKER", place.settings["COUNTERSINK_BROKER"])
    main(["map", "--prefix", "looked:", "--add", "10"])
    assert "counters visited 2, changed 2, failed 0" in capsys.readouterr().out
    assert next(looks) > 2
    assert [place.total(f"looked:{name}") for name in "ab"] == [11, 11]


def test_without_a_service_it_says_how_to_go_on() -> None:
    asked = ["--prefix", "", "--add", "1", "--job", "mine"]
    done = run("map", *asked, "--url", "http://127.0.0.1:1", "--patience", "0", cwd=None)
    assert done.code == 1
    assert done.lines[-1].endswith("(to continue, repeat the command with --job mine)")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_says_how_to_go_on(tmp_path: Path, place: Place, number: signal.Signals) -> None:
    """The service has no flusher, so the job stays where it is."""
    with subprocess.Popen(
        [*COUNTERSINK, "ingest", "--port", "0"],
        env=environment(COUNTERSINK_BROKER=f"sqlite:///{tmp_path / 'file'}"),
        stdout=subprocess.PIPE,
        text=True,
    ) as alone:
        try:
            assert alone.stdout is not None
            url = alone.stdout.readline().split()[5].rstrip(",")
            # Who is started by a shell in the background would not hear it.
            command = ["env", "--default-signal=INT", *COUNTERSINK, "map", "--prefix", "p", "--add", "1", "--url", url]
            with subprocess.Popen(
                [*command, "--job", "mine"], env=environment(), stderr=subprocess.PIPE, text=True
            ) as asking:
                assert asking.stderr is not None
                assert asking.stderr.readline() == "job mine\n"
                asking.send_signal(number)
                rest = asking.stderr.read()
            again = "to look at it again, repeat the command with --job mine"
            assert rest == f"job mine continues; {again}; to stop it, send DELETE {url}/v1/jobs/mine\n"
            assert asking.returncode == 128 + number
        finally:
            alone.terminate()

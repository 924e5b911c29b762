"""Which file the spool is, and whose."""

from pathlib import Path

import pytest

from shared import files
from shared.clock import SystemClock
from shared.errors import SettingsError
from shared.settings import Settings
from shared.sqlite.broker import SqlitePublisher, claim
from shared.sqlite.database import Database
from shared.words import Message

BROKER = "pubsub://p/likes?subscription=flushers"


async def test_a_spool_is_of_one_topic_for_ever(tmp_path: Path) -> None:
    """Envelopes of one must not be published on another."""
    database = Database(tmp_path / "spool.db")
    try:
        claim(database, "one")
        await SqlitePublisher(database, SystemClock(), 10_000).publish([Message(b"{}")])
        claim(database, "one")
        with pytest.raises(SettingsError, match=r"holds envelopes for one, not for two: name another file"):
            claim(database, "two")
    finally:
        await database.close()


async def test_the_file_of_another_kind_of_broker_is_no_spool(tmp_path: Path) -> None:
    """`up` with its own file may have been there first."""
    database = Database(tmp_path / "countersink.db")
    try:
        await SqlitePublisher(database, SystemClock(), 10_000).publish([Message(b"{}")])
        with pytest.raises(SettingsError, match="name another file"):
            claim(database, "one")
    finally:
        await database.close()


@pytest.mark.parametrize(("kind", "there"), [("ext4", True), ("overlay", False), ("tmpfs", False), ("", True)])
def test_by_default_there_is_a_spool_where_the_disk_outlives_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, *, there: bool
) -> None:
    monkeypatch.setattr(files, "mounts", lambda: f"disk / {kind} rw 0 0\n" if kind else "")
    file = files.spool_file(Settings(broker=BROKER))
    assert (file is not None) == there
    assert ("COUNTERSINK_SPOOL" in caplog.text) == (not there)
    if file:
        assert file.name == "spool-p-likes.db"


def test_who_names_a_file_gets_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "mounts", lambda: "disk / tmpfs rw 0 0\n")
    assert files.spool_file(Settings(broker=BROKER, spool=str(tmp_path / "s"))) == tmp_path / "s"
    assert files.spool_file(Settings(broker=BROKER, spool="off")) is None

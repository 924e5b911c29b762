"""Which file the spool uses, to which process it belongs, and how that reads the rows which it finds there."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from shared.config.findings import FAIL
from shared.config.settings import Settings
from shared.model.errors import CountersinkError, SettingsError
from shared.model.words import Envelope, Message
from shared.runtime import metrics
from shared.runtime.clock import SystemClock
from shared.sqlite.broker import SqlitePublisher, SqliteSubscription, claim
from shared.sqlite.data_file import why_ephemeral
from shared.sqlite.database import Database
from shared.sqlite.spool import SpoolRows, SpoolSetup
from shared.wire.codec import encode
from shared.wiring import files
from shared.wiring.files import Queue, open_spool

BROKER = "pubsub://p/likes?subscription=flushers"


@pytest.mark.parametrize("topic", ["one", None], ids=["of another topic", "of a broker in a file"])
async def test_what_holds_other_messages_is_no_spool_for_a_topic(database: Database, topic: str | None) -> None:
    """Envelopes of one topic must not be published on another; and `up` with its own file may have been there first."""
    for _ in range(2):
        if topic is not None:
            claim(database, topic)
        await SqlitePublisher(database, SystemClock(), 10_000).publish([Message(b"{}")])
    said = "holds envelopes for one, not for two: name another file" if topic else "name another file"
    with pytest.raises(SettingsError, match=said):
        claim(database, "two")


ROOT = "1 0 8:1 / / rw - {} /dev/sda rw\n"
PODS = "/var/lib/kubelet/pods/0a1b/volumes"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("", None),
        (ROOT.format("ext4"), None),
        (ROOT.format("overlay"), "a container's own layer (overlay)"),
        (ROOT.format("tmpfs"), "in memory (tmpfs)"),
        (ROOT.format("overlay") + "2 1 8:1 /data /spool rw - ext4 /dev/sdb rw\n", None),
        (f"2 1 8:1 {PODS}/kubernetes.io~empty-dir/spool /spool rw shared:1 - ext4 /dev/sda rw\n", "emptyDir"),
        ("2 1 8:1 /pods/0a1b/volumes/kubernetes.io~empty-dir/spool /spool rw - xfs /dev/sda rw\n", "emptyDir"),
        (f"2 1 8:1 {PODS}/kubernetes.io~csi/pvc-1/mount /spool rw - ext4 /dev/sda rw\n", None),
        ("2 1 0:9 / /spool rw - tmpfs tmpfs rw\n", "in memory"),
        (f"2 1 8:1 /docker/volumes/{'ab' * 32}/_data /spool rw - ext4 /dev/sda rw\n", "without a name"),
        ("2 1 8:1 /docker/volumes/spool/_data /spool rw - ext4 /dev/sda rw\n", None),
        ("2 1 0:9 / /spo rw - tmpfs tmpfs rw\n", None),
    ],
)
def test_a_volume_that_ends_with_its_pod_is_known(table: str, why: str | None) -> None:
    found = why_ephemeral(Path("/spool/deep"), table)
    assert found is why is None or (why is not None and why in str(found))


def test_a_mount_point_may_hold_spaces() -> None:
    assert why_ephemeral(Path("/a b"), "2 1 0:9 / /a\\040b rw - tmpfs tmpfs rw\n") == "in memory (tmpfs)"


@pytest.mark.parametrize(
    ("disk", "kind", "keeps"),
    [
        ("auto", "ext4", True), ("auto", "tmpfs", False), ("durable", "tmpfs", True), ("ephemeral", "ext4", False),
    ],
)  # fmt: skip
def test_what_is_said_of_the_disk_beats_what_is_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, disk: str, kind: str, *, keeps: bool
) -> None:
    monkeypatch.setattr("shared.wiring.files.mounts", lambda: ROOT.format(kind))
    settings = [Settings(broker=BROKER, spool_disk=disk)]
    settings.append(replace(settings[0], spool=str(tmp_path / "named.db")))
    for one in settings:
        flaw = files.spool_flaw(one)
        assert (flaw is None) == keeps
        assert flaw is None or "COUNTERSINK_SPOOL_DISK=durable" in flaw


def test_a_wrong_word_for_the_disk_is_one_line() -> None:
    with pytest.raises(SettingsError, match="COUNTERSINK_SPOOL_DISK='nfs': must be auto or durable or ephemeral"):
        Settings.read({"COUNTERSINK_SPOOL_DISK": "nfs"})


async def opened(settings: Settings) -> Queue | None:
    queue = open_spool(settings, SystemClock(), "projects/p/topics/likes", makes=True)
    if queue is not None:
        await queue.close()
    return queue


async def test_on_a_disk_that_ends_with_the_process_nothing_is_added(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was put there before, when it was durable, is still sent."""
    file = tmp_path / "spool.db"
    durable = Settings(broker=BROKER, spool=str(file), spool_disk="durable")
    ephemeral = replace(durable, spool_disk="ephemeral")
    assert await opened(ephemeral) is None
    assert "clients get 503" in caplog.text
    assert not file.exists()
    made = await opened(durable)
    assert made is not None
    assert made.keeps
    left = await opened(ephemeral)
    assert left is not None
    assert not left.keeps
    assert await opened(replace(durable, spool="off")) is None


async def spooled(file: Path, reason: str | None = None) -> None:
    """A spool with one envelope, which waits, or is buried for this reason."""
    database = Database(file)
    claim(database, "projects/p/topics/likes")
    await SqlitePublisher(database, SystemClock(), 10_000).publish([Message(b"1")])
    if reason is not None:
        subscription = SqliteSubscription(database, SystemClock(), 5.0)
        (delivery,) = await subscription.pull(10, 10_000, 0)
        await subscription.bury(delivery, reason)
    await database.close()


async def test_what_waits_in_a_file_that_is_not_used_any_more_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = Settings(broker=BROKER, spool_disk="durable")
    await spooled(files.spool_path(usual))
    for other in (replace(usual, spool="off"), replace(usual, spool=str(tmp_path / "other.db"))):
        caplog.clear()
        await opened(other)
        assert "1 envelope accepted and NOT sent" in caplog.text
    caplog.clear()
    await opened(usual)
    assert "NOT sent" not in caplog.text


async def test_what_can_never_be_sent_is_shown_at_every_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "spool.db"
    await spooled(file, reason="it is too large to be sent")
    settings = Settings(broker=BROKER, spool=str(file), spool_disk="durable")
    for _ in range(2):
        caplog.clear()
        await opened(settings)
        assert "1 envelope can't be sent, so NOT counted: see countersink dlq list" in caplog.text
        assert metrics.SPOOL_BURIED.get() == 1
    marks = [one.mark async for one in SpoolSetup(file, 0, None).findings()]
    assert marks[-1] == FAIL


NUMBER = 250
"""More than are read at once."""


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[Queue]:
    settings = Settings(broker=BROKER, spool=str(tmp_path / "spool.db"), spool_disk="durable")
    spool = open_spool(settings, SystemClock(), "test", makes=True)
    assert spool is not None
    await spool.publisher.publish([encode(Envelope(f"e{number}", {"a": 1})) for number in range(NUMBER)])
    yield spool
    await spool.close()


async def rest(rows: SpoolRows, found: list[str]) -> None:
    """What is left to be read."""
    async for envelope, _ in rows.read():
        found.append(envelope.id)


def is_read(rows: SpoolRows) -> bool:
    return rows.unreadable is False


async def test_a_reader_that_stops_early_goes_on_where_it_stopped(spool: Queue) -> None:
    """The overlay's copy was full."""
    rows = spool.rows()
    found: list[str] = []
    async for envelope, _ in rows.read():
        if len(found) == 120:
            break
        found.append(envelope.id)
    assert not is_read(rows)
    await rest(rows, found)
    assert found == [f"e{number}" for number in range(NUMBER)]
    await rest(rows, found)
    assert len(found) == NUMBER
    assert is_read(rows)


async def test_after_an_error_the_rest_is_not_taken_for_read(spool: Queue) -> None:
    rows = spool.rows()
    found: list[str] = []
    readable = spool.file.read
    asked = 0

    def fails(*question: object) -> object:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise CountersinkError("a disk error")
        return readable(*question)  # type: ignore[arg-type]

    spool.file.read = fails  # type: ignore[assignment,method-assign]
    with pytest.raises(CountersinkError):
        await rest(rows, found)
    assert not is_read(rows)
    await rest(rows, found)
    assert found == [f"e{number}" for number in range(NUMBER)]

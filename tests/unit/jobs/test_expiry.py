"""The daily jobs that delete old counters: one a day for the whole fleet, whoever is killed."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flusher.cleanup import REPAIR, DailyExpiry, id_of
from flusher.jobs import Resetting
from shared.config.settings import Settings
from shared.counters.jobs import JobResults, JobStarter
from shared.counters.setter import Compactor, Setter
from shared.model.buckets import DAY, DAY_SECONDS
from shared.model.errors import InexactError, SettingsError
from shared.model.jobs import DONE, EXPIRE, FAILED, RUNNING, ExpireRule, JobState, flaw_of_job
from shared.runtime import metrics
from shared.wiring.process import connect
from tests.http.faults import failing
from tests.unit.jobs.test_worker import LIVE, Parts

RULES = (ExpireRule("page:", 400), ExpireRule("quota:", 2))


class Fleet(Parts):
    """Flushers that share a store, which are started again at will."""

    def __init__(self) -> None:
        super().__init__()
        setter = Setter(self.reader, self.store, self.overlay, self.clock, LIVE)
        self.worker.visits = {EXPIRE: Resetting(setter)}

    def flusher(self, rules: tuple[ExpireRule, ...] = RULES) -> DailyExpiry:
        compactor = Compactor(self.store, self.clock, DAY)
        starter = JobStarter(
            self.jobs, self.tasks, self.overlay, compactor, self.clock, store=self.store, receipts_live=LIVE
        )
        return DailyExpiry(rules, self.jobs, starter, self.clock)

    async def standings(self) -> list[JobState]:
        return [*reversed(await self.jobs.latest("", 1_000))]

    async def left(self) -> list[str]:
        names = await self.store.names("", "", 100)
        return sorted({*names} - {*await self.store.deleted_among(names)})


def due(prefix: str) -> float:
    return metrics.EXPIRE_DUE.labels(prefix).get()


async def test_a_fleet_does_one_job_a_day_for_each_rule(caplog: pytest.LogCaptureFixture) -> None:
    fleet = Fleet()
    await fleet.count("page:a", "page:b", "quota:a", "other")
    flushers = [fleet.flusher() for _ in range(3)]
    for day in range(5):
        for _ in range(3):
            for flusher in (*flushers, fleet.flusher()):  # the last one has just been started
                await flusher.look()
            assert due("page:") == (len([one for one in await fleet.standings() if one.state == RUNNING]) > 0)
            await fleet.run()
            fleet.clock.turn(60)
        assert len(await fleet.standings()) == 2 * (day + 1)
        assert {one.state for one in await fleet.standings()} == {DONE}
        if day == 1:
            await fleet.count("quota:b")
        fleet.clock.turn(DAY_SECONDS - 180)
    assert await fleet.left() == ["other", "page:a", "page:b"]
    assert sum(one.progress.changed for one in await fleet.standings()) == 2
    deletions = [one.getMessage() for one in caplog.records if "it has deleted 1" in one.getMessage()]
    assert len(deletions) == 2
    assert deletions[0].startswith("job expire-quota-")
    ids = [one.job.id for one in await fleet.standings() if one.progress.changed]
    results = JobResults(fleet.jobs, fleet.store)
    taken = [line for id_ in ids for line in [page async for page in results.pages(id_)]]
    assert taken == [b'{"name":"quota:%b","before":1}\n' % name for name in (b"a", b"b")]


async def test_a_job_whose_starter_was_killed_is_started_again_after_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    await fleet.count("page:a")
    monkeypatch.setattr(fleet.tasks, "publish", failing(InexactError("as good as killed")))
    await fleet.flusher(RULES[:1]).look()
    monkeypatch.undo()
    flushers = [fleet.flusher(RULES[:1]), fleet.flusher(RULES[:1])]
    for _ in range(int(REPAIR) // 60):
        for flusher in flushers:
            await flusher.look()
        fleet.clock.turn(60)
    assert len(fleet.tasks) == 0
    for _ in range(5):
        for flusher in flushers:
            await flusher.look()
        fleet.clock.turn(60)
    assert len(fleet.tasks) == 2, "each asks once, which changes nothing twice"
    await fleet.run()
    (standing,) = await fleet.standings()
    assert standing.state == DONE


async def test_a_job_that_failed_or_is_another_one_is_said_once_and_comes_again_the_next_day(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fleet = Fleet()
    one, other = fleet.flusher(RULES[:1]), fleet.flusher((ExpireRule("page:", 30),))
    await one.look()
    (standing,) = await fleet.standings()
    for _ in range(2):
        await other.look()
    await fleet.jobs.end(standing.job.id, FAILED, 1, "somebody stopped it")
    for _ in range(2):
        await one.look()
    assert due("page:") == 1
    (said,) = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert "has failed: somebody stopped it. The next one begins at midnight in UTC" in said
    assert said.endswith("countersink map --prefix 'page:' --delete --unused-for 400d")
    fleet.clock.turn(DAY_SECONDS)
    await one.look()
    await fleet.run()
    await one.look()
    assert due("page:") == 0
    await other.look()
    said = caplog.records[-1].getMessage()
    assert "another job: expire under the prefix 'page:' with days 400. If the rule was changed today, the new" in said


async def test_a_rule_that_can_not_be_started_holds_up_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet()
    flusher = fleet.flusher()
    start = flusher._starter.start

    async def inexact(kind: str, prefix: str, days: int, *, id_: str) -> object:
        if prefix == "page:":
            raise InexactError("not now")
        return await start(kind, prefix, days, id_=id_)

    monkeypatch.setattr(flusher._starter, "start", inexact)
    for _ in range(3):
        await flusher.look()
    assert [one.job.prefix for one in await fleet.standings()] == ["quota:"]
    (said,) = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert said.endswith("under 'page:' can't be started, and is tried again each minute: not now")


@given(st.text(max_size=400), st.text(max_size=400))
def test_prefixes_have_jobs_of_their_own(prefix: str, other: str) -> None:
    id_ = id_of(prefix.encode(errors="replace").decode(), "2026-11-27")
    assert flaw_of_job(id_) is None
    assert id_.startswith("expire-")
    assert id_.endswith("-2026-11-27")
    other_id = id_of(other.encode(errors="replace").decode(), "2026-11-27")
    assert (id_ == other_id) == (prefix.encode(errors="replace") == other.encode(errors="replace"))


def test_rules_are_read() -> None:
    assert Settings.read({"COUNTERSINK_EXPIRE": "page:=400d, a=b=2y"}).expire == (
        ExpireRule("page:", 400),
        ExpireRule("a=b", 732),
    )
    assert Settings.read({"COUNTERSINK_EXPIRE": "=1d"}).expire == (ExpireRule("", 1),)


@pytest.mark.parametrize(
    "text", ["page:", "page:=", "page:=0d", "page:=12h", "page:=101y", "page:=4", "a=1d,a=2d", "a=1d,ab=2d", "=1d,b=2d"]
)
def test_a_wrong_rule_is_one_line_that_names_the_variable(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^COUNTERSINK_EXPIRE=") as wrong:
        Settings.read({"COUNTERSINK_EXPIRE": text})
    assert "\n" not in str(wrong.value)
    if text == "page:=4":
        assert str(wrong.value).startswith(f"COUNTERSINK_EXPIRE='{text}': must be whole days or years, as in 90d or 2y")


def test_with_pubsub_it_needs_an_exact_overlay() -> None:
    pubsub = {"COUNTERSINK_BROKER": "pubsub://p/t?subscription=s", "COUNTERSINK_STORE": "datastore://p"}
    with pytest.raises(SettingsError, match=r"COUNTERSINK_EXPIRE .* needs COUNTERSINK_OVERLAY=redis"):
        connect(Settings.read(pubsub | {"COUNTERSINK_EXPIRE": "page:=400d"}))

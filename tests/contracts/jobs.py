"""The contract of what keeps jobs: each task counts once, and a job is finished when none is open."""

import asyncio

import pytest

from shared.model.buckets import StoreMillis
from shared.model.errors import ShareError
from shared.model.jobs import (
    ADD,
    ALL,
    DONE,
    EXPORT,
    FAILED,
    MOST_RUNNING,
    RUNNING,
    Done,
    Job,
    JobState,
    Progress,
    Span,
    Task,
    divided,
)
from shared.model.ranges import Range
from shared.ports.store import Jobs

JOB = Job("j", ADD, "p", 5, created=1_000, expires=StoreMillis(2_000))


def done(task: Task, *cuts: str, chunk: bytes = b"", visited: int = 3, failed: int = 0) -> Done:
    """With a child that begins at each of the cuts."""
    ends = [*cuts[1:], task.range.until]
    parts = [Range(begin, end, task.range.depth + 1) for begin, end in zip(cuts, ends, strict=False)]
    children, share = divided(task, parts)
    examples = (("p\u00e9", "no"),) * failed
    progress = Progress(1, visited, visited - failed, failed, task.range.depth, share, examples)
    return Done(task, progress, children, chunk)


async def standing(jobs: Jobs, job: str = "j") -> JobState:
    found = await jobs.get(job)
    assert found is not None
    return found


class JobsContract:
    """Inherit it, with a fixture `jobs`."""

    async def test_a_job_that_is_new_has_one_task(self, jobs: Jobs) -> None:
        assert await jobs.get("j") is None
        there, new = await jobs.create(JOB)
        assert (there, new) == (JobState(JOB, open=1), True)
        assert await standing(jobs) == there
        assert await jobs.get("other") is None

    async def test_the_first_job_of_an_id_stays(self, jobs: Jobs) -> None:
        await jobs.create(JOB)
        await jobs.record(done(Task("j"), "p3"))
        there, new = await jobs.create(JOB._replace(number=6, created=1_001))
        assert (there.job, new) == (JOB, False)
        assert (await standing(jobs)).progress.tasks == 1

    async def test_of_those_who_make_it_at_once_one_does(self, jobs: Jobs) -> None:
        made = await asyncio.gather(*(jobs.create(JOB._replace(number=number)) for number in range(5)))
        assert sum(new for _, new in made) == 1
        assert len({there.job for there, _ in made}) == 1

    async def test_those_of_an_owner_are_listed_the_latest_first(self, jobs: Jobs) -> None:
        for number, id_ in enumerate(("me/a", "b", "me/c", "mee/d", "e", "me-/f")):
            await jobs.create(JOB._replace(id=id_, created=1_000 + number))
        await jobs.end("me/a", DONE, 1_600)
        assert [one.job.id for one in await jobs.latest("me", 10)] == ["me/c", "me/a"]
        assert [one.job.id for one in await jobs.latest("", 10)] == ["e", "b"]
        assert [one.job.id for one in await jobs.latest("", 1)] == ["e"]
        assert await jobs.latest("nobody", 10) == []
        assert await jobs.latest("me", 10) == [await jobs.get("me/c"), await jobs.get("me/a")]

    async def test_an_owner_may_have_so_many_running_jobs(self, jobs: Jobs) -> None:
        """Of all that are started at once, no more begin. Other owners, and jobs without an owner, are not held up."""
        many = [JOB._replace(id=f"me/{number}") for number in range(MOST_RUNNING + 5)]
        outcomes = await asyncio.gather(*map(jobs.create, many), return_exceptions=True)
        refused = [one for one in outcomes if isinstance(one, BaseException)]
        assert len(refused) == 5
        for error in refused:
            assert isinstance(error, ShareError)
            assert error.retry_after >= 1
            assert "'me'" in str(error)
        began = [job for job, one in zip(many, outcomes, strict=True) if not isinstance(one, BaseException)]
        again = await jobs.create(began[0])
        assert again == (JobState(began[0], open=1), False)
        for other in ("m/a", "me0/a", "me-/a", "mee/a", "a"):
            assert (await jobs.create(JOB._replace(id=other)))[1]
        await jobs.end(began[3].id, DONE, 1_600)
        await jobs.end(began[4].id, FAILED, 1_600)
        for number in range(2):
            assert (await jobs.create(JOB._replace(id=f"me/more{number}")))[1]
        with pytest.raises(ShareError):
            await jobs.create(JOB._replace(id="me/another"))
        for number in range(MOST_RUNNING + 5):
            await jobs.create(JOB._replace(id=f"{number}"))

    async def test_ids_prefixes_and_deltas_are_kept_whatever_they_are(self, jobs: Jobs) -> None:
        for job in (
            JOB._replace(id="a.-_", prefix="", number=-(2**53) + 1),
            JOB._replace(id="B", prefix="\U0010ffff' _"),
            JOB._replace(id="C", kind=EXPORT, number=0, span=Span("hour")),
            JOB._replace(id="D", kind=EXPORT, number=0, span=Span("day", -(2**45), 2**47)),
        ):
            await jobs.create(job)
            assert (await standing(jobs, job.id)).job == job
            assert job in [one.job for one in await jobs.latest("", 10)]

    async def test_a_task_that_is_done_adds_to_the_job(self, jobs: Jobs) -> None:
        await jobs.create(JOB)
        first = done(Task("j"), "p3", "p5", "p7")
        assert await jobs.record(first) == first
        there = await standing(jobs)
        assert (there.open, there.progress) == (3, Progress(1, 3, 3, 0, 1, ALL - 3 * (ALL // 3)))
        for child in first.children:
            await jobs.record(done(child, visited=2, failed=1))
        there = await standing(jobs)
        assert (there.open, there.state) == (0, RUNNING)
        assert there.progress == Progress(4, 9, 6, 3, 2, ALL, (("p\u00e9", "no"),) * 3)

    async def test_a_task_is_done_once(self, jobs: Jobs) -> None:
        """What is kept is the first: also where others would split it in another way."""
        await jobs.create(JOB)
        first, second = done(Task("j"), "p3"), done(Task("j"), "p4", "p6", visited=9)
        assert await jobs.record(first) == first
        kept = await jobs.record(second)
        assert kept is not None
        assert kept.children == first.children
        there = await standing(jobs)
        assert (there.open, there.progress.tasks, there.progress.visited) == (1, 1, 3)

    async def test_of_those_who_do_it_at_once_one_counts(self, jobs: Jobs) -> None:
        await jobs.create(JOB)
        tries = [done(Task("j"), *(f"p{number}" for number in range(1, most))) for most in range(2, 8)]
        kept = await asyncio.gather(*map(jobs.record, tries))
        (begins,) = {tuple(child.range.after for child in one.children) for one in kept if one is not None}
        there = await standing(jobs)
        assert (there.open, there.progress.tasks) == (len(begins), 1)

    async def test_tasks_that_are_done_at_once_all_count(self, jobs: Jobs) -> None:
        await jobs.create(JOB)
        first = done(Task("j"), *(f"p{number:02}" for number in range(1, 25)))
        await jobs.record(first)
        await asyncio.gather(*(jobs.record(done(child)) for child in first.children))
        there = await standing(jobs)
        assert (there.open, there.progress.tasks, there.progress.visited) == (0, 25, 75)
        assert there.progress.share == ALL

    async def test_open_is_nothing_only_when_nothing_is(self, jobs: Jobs) -> None:
        """Whoever looks while tasks end and open others."""
        await jobs.create(JOB)
        looks = []
        finished = False

        async def look() -> None:
            while not finished:
                there = await standing(jobs)
                looks.append((there.open, there.progress.share))
                await asyncio.sleep(0)

        async def work(task: Task, depth: int) -> None:
            end = f"{task.range.after or 'p'}"
            one = done(task, *([f"{end}1", f"{end}3"] if depth else []))
            await jobs.record(one)
            await asyncio.gather(*(work(child, depth - 1) for child in one.children))

        looking = asyncio.create_task(look())
        await work(Task("j"), 4)
        finished = True
        await looking
        assert (await standing(jobs)).open == 0
        assert all(share == ALL for open_, share in looks if not open_)
        assert all(open_ >= 0 for open_, _ in looks)

    async def test_what_is_done_is_found_again(self, jobs: Jobs) -> None:
        await jobs.create(JOB)
        await jobs.create(JOB._replace(id="k"))
        first = done(Task("j"), "p\u00e9", "p\U0001f600", chunk=b"\xff1\n", failed=1)
        await jobs.record(first)
        child = done(first.children[1])
        await jobs.record(child)
        found = await jobs.recorded("j", ["", "p\u00e9", "p\U0001f600", "q"])
        assert {begin: one.children for begin, one in found.items()} == {"": first.children, "p\U0001f600": []}
        assert found[""].task == first.task
        assert found[""].progress == first.progress
        assert await jobs.recorded("k", [""]) == {}
        assert await jobs.recorded("j", []) == {}

    async def test_nothing_is_done_for_a_job_that_is_not_there(self, jobs: Jobs) -> None:
        assert await jobs.record(done(Task("j"), "p3")) is None
        assert await jobs.recorded("j", [""]) == {}
        await jobs.end("j", DONE, 5)
        assert await jobs.get("j") is None

    async def test_jobs_are_apart(self, jobs: Jobs) -> None:
        await jobs.create(JOB)
        await jobs.create(JOB._replace(id="k"))
        await jobs.record(done(Task("j"), "p3"))
        await jobs.record(done(Task("k")))
        assert [(await standing(jobs, job)).open for job in "jk"] == [1, 0]
        await jobs.end("k", DONE, 5)
        assert [(await standing(jobs, job)).state for job in "jk"] == [RUNNING, DONE]

    async def test_a_job_ends_once(self, jobs: Jobs) -> None:
        await jobs.create(JOB)
        await jobs.end("j", FAILED, 7, "too old")
        await jobs.end("j", DONE, 8)
        there = await standing(jobs)
        assert (there.state, there.finished, there.why) == (FAILED, 7, "too old")
        assert (await jobs.create(JOB))[0].state == FAILED

    async def test_chunks_are_in_the_order_of_their_ranges(self, jobs: Jobs) -> None:
        await jobs.create(JOB)
        await jobs.create(JOB._replace(id="j0"))
        begins = ["p1", "p\uffff", "p\U0001f600"]  # in UTF-16 the last two stand the other way round
        first = done(Task("j"), *begins, chunk=b"0")
        await jobs.record(first)
        for number, child in reversed([*enumerate(first.children, 1)]):
            await jobs.record(done(child, chunk=b"%d" % number))
        await jobs.record(done(Task("j0"), chunk=b"other"))
        expected = [*zip(["", *begins], (b"0", b"1", b"2", b"3"), strict=True)]
        assert [tuple(one) for one in await jobs.chunks("j", "", 10)] == expected
        assert [tuple(one) for one in await jobs.chunks("j", "", 2)] == expected[:2]
        assert [tuple(one) for one in await jobs.chunks("j", "p1", 10)] == expected[2:]
        assert await jobs.chunks("j", begins[-1], 10) == []

    async def test_large_chunks_are_kept(self, jobs: Jobs) -> None:
        await jobs.create(JOB)
        chunk = bytes(range(256)) * 1_000
        await jobs.record(done(Task("j"), chunk=chunk))
        assert [tuple(one) for one in await jobs.chunks("j", "", 10)] == [("", chunk)]

    async def test_what_has_expired_goes_and_all_else_stays(self, jobs: Jobs) -> None:
        for number, id_ in enumerate("jkl"):
            await jobs.create(JOB._replace(id=id_, expires=StoreMillis(2_000 + number)))
            first = done(Task(id_), "p3", "p5")
            await jobs.record(first)
            await jobs.record(done(first.children[0]))
        await jobs.end("j", DONE, 1_500)
        while await jobs.sweep(StoreMillis(2_002), 1):
            there = await jobs.get("j")  # its chunks are not all there any more, or none is
            assert there is None or there.state == FAILED
        assert [await jobs.get(id_) for id_ in "jk"] == [None, None]
        assert (await standing(jobs, "l")).progress.tasks == 2
        assert await jobs.recorded("j", ["", "p3"]) == {}
        assert len(await jobs.chunks("l", "", 10)) == 2
        there, new = await jobs.create(JOB)
        assert (there, new) == (JobState(JOB, open=1), True)

    async def test_results_that_are_discarded_are_gone_and_the_job_has_failed(self, jobs: Jobs) -> None:
        for id_, state in (("j", DONE), ("k", RUNNING), ("l", DONE)):
            await jobs.create(JOB._replace(id=id_))
            first = done(Task(id_), "p3", "p5", chunk=b"1")
            await jobs.record(first)
            await jobs.record(done(first.children[0], chunk=b"3"))
            if state == DONE:
                await jobs.end(id_, DONE, 1_500)
        for id_ in "jk":
            assert await jobs.discard(id_, 1_700, "deleted", 1) == 1
            there = await standing(jobs, id_)  # not all of its result is there, so it must not look as if it were
            assert (there.state, there.finished, there.why) == (FAILED, 1_700, "deleted")
            assert await jobs.discard(id_, 1_800, "again", 5) == 1
            assert await jobs.discard(id_, 1_800, "again", 5) == 0
            assert await jobs.chunks(id_, "", 10) == []
            assert (await standing(jobs, id_)).finished == 1_700
        assert (await standing(jobs, "l")).state == DONE
        assert [chunk for _, chunk in await jobs.chunks("l", "", 10)] == [b"1", b"3"]
        assert await jobs.discard("m", 1_700, "deleted", 5) == 0

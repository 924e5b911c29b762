"""The contract of what hands out the tasks of jobs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from shared.model.jobs import Lease, Task
from shared.model.ranges import Range
from shared.ports.store import Tasks

LONG = 2.0
TASKS = [Task("j", Range(f"p{number}\u00e9", None if number else "p9", number), 7, bool(number)) for number in range(3)]


@dataclass
class Waiting:
    """What a queue of tasks is tested with."""

    tasks: Tasks
    another: Tasks
    """Of another process, or the same."""
    lapse: Callable[[], Awaitable[None]]
    """Has all leases run out."""


async def pull(tasks: Tasks, count: int) -> list[Lease]:
    found: list[Lease] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await tasks.pull(count - len(found), LONG)
    return found


def tokens(leases: Sequence[Lease]) -> list[str]:
    return [lease.token for lease in leases]


class TasksContract:
    """Inherit it, with a fixture `waiting`."""

    async def test_nothing_is_handed_out_of_nothing(self, waiting: Waiting) -> None:
        await waiting.tasks.publish([])
        assert not await waiting.tasks.pull(10, 0)

    async def test_who_waits_gets_what_comes(self, waiting: Waiting) -> None:
        waits = asyncio.create_task(waiting.tasks.pull(1, LONG))
        await asyncio.sleep(0)
        await waiting.tasks.publish(TASKS[:1])
        assert [lease.task for lease in (await waits) or await pull(waiting.tasks, 1)] == TASKS[:1]

    async def test_no_more_than_asked_for(self, waiting: Waiting) -> None:
        await waiting.tasks.publish(TASKS)
        first = await waiting.tasks.pull(2, LONG)
        assert 1 <= len(first) <= 2
        rest = await pull(waiting.tasks, 3 - len(first))
        assert sorted(lease.task for lease in (*first, *rest)) == sorted(TASKS)
        assert len({*tokens((*first, *rest))}) == 3

    async def test_what_is_done_does_not_come_again(self, waiting: Waiting) -> None:
        await waiting.tasks.publish(TASKS[:2])
        found = await pull(waiting.tasks, 2)
        await waiting.tasks.ack(tokens(found)[:1])
        await waiting.lapse()
        (again,) = await pull(waiting.another, 1)
        assert again.task == found[1].task
        assert again.token != found[1].token
        assert not await waiting.another.pull(10, 0)

    async def test_a_lost_lease_stays_lost(self, waiting: Waiting) -> None:
        await waiting.tasks.publish(TASKS[:1])
        first = await pull(waiting.tasks, 1)
        await waiting.lapse()
        second = await pull(waiting.another, 1)
        for lost in (waiting.tasks.extend, waiting.tasks.give_back, waiting.tasks.ack):
            await lost(tokens(first))
            assert not await waiting.tasks.pull(10, 0)
        await waiting.another.give_back(tokens(second))
        assert len(await pull(waiting.tasks, 1)) == 1

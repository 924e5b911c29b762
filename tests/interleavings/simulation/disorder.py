"""What goes wrong in a fleet: processes die, stand still and are cut off; Redis dies, forgets, is split, goes back."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from shared.counters.setter import Compactor
from shared.model.buckets import DAY, Millis
from shared.model.errors import BrokerRejectedError, UnkeptError
from tests.interleavings.simulation.keys import Keys
from tests.interleavings.simulation.loop import NOBODY
from tests.interleavings.simulation.users import COUNTERS

if TYPE_CHECKING:
    from tests.interleavings.simulation.fleet import FleetSystem

SERVICES: Final = {
    "redis": ("redis",),
    "the fleet's entity": ("fleet",),
    "the store": ("fleet", "apply", "snapshot", "read", "receipts", "shards"),
    "the broker": ("publish", "pull", "ack"),
}
"""What a process can be cut off from, and the calls that are then in vain."""
SUSPENDED: Final = 0.08
"""Seconds in which a machine falls asleep."""
LAG: Final = 1.0
"""Seconds by which a replica is behind at most."""
RATES: Final = (0.3, 0.7, 1.5)
"""Faults in a second: where there are many of them, few readings are exact."""


class Disorder:
    """Of one system."""

    def __init__(self, system: "FleetSystem") -> None:
        self._system = system
        self._random = system.random
        self._rate = self._random.choice(RATES)
        self._over = False
        faults: list[Callable[[], object]] = [
            *[self._kill_ingest] * 2,
            *(self._end_ingest, self._add_ingest, self._kill_flusher, self._end_flusher, self._restart_ingest),
            *[self._freeze] * 2,
            *[self._cut_off] * 2,
            *(self._leave_alone, self._jump, self._kill_redis, self._empty_redis),
            *[self._fail_over] * 3,
            *[self._roll_back] * 2,
            *(self._hang, self._fill, self._switch, self._refuse, self._turn_away, self._shards),
            self._system.other_settings,
        ]
        # Where everything fails little can be exact, so each run has some kinds of faults only.
        kept = self._random.choice([0.2, 0.4, 1.0])
        self._faults = [fault for fault in faults if self._random.random() < kept] or faults

    async def run(self, until: float) -> None:
        """Then what is wrong stays wrong for a while."""
        loop = self._system.loop
        while loop.time() < until:
            await asyncio.sleep(self._random.expovariate(self._rate))
            self._system.check()
            self._random.choice(self._faults)()

    def heal(self) -> None:
        """Everything works again, and stays so."""
        system, site = self._system, self._system.site
        self._over = True
        for owner in system.loop.frozen():
            system.loop.thaw(owner)
        system.refusal = None
        system.network.gone.clear()
        system.network.stopped.clear()
        system.network.cut.clear()
        site.astray.clear()
        for host, pair in site.pairs.items():
            for server in pair:
                server.hangs_until, server.full = 0.0, False
                if not server.up:
                    server.start()
            master, spare = site.current(host)
            if not master.master:
                master.promote()
            spare.follow(master)

    def _soon(self, fault: Callable[[], object], delay: float) -> None:
        """Unless everything has been mended by then."""
        self._system.loop.call_later(delay, lambda: None if self._over else fault(), context=NOBODY)

    def _later(self, undo: Callable[[], object], longest: float) -> None:
        """In the same episode, or in the next one: nothing is mended while hours pass."""
        system = self._system

        def again() -> None:
            if system.network.calm:
                system.loop.call_later(600.0, again, context=NOBODY)
            else:
                undo()

        system.loop.call_later(self._random.uniform(0.1, longest), again, context=NOBODY)

    def _any(self) -> str:
        return self._random.choice([*self._system.flushers, *(one.owner for one in self._system.ingests)])

    def _kill_ingest(self) -> None:
        self._system.replace(self._random.choice(self._system.ingests).owner)

    def _end_ingest(self) -> None:
        """As a rolling restart does: another one is there before it goes."""
        system = self._system
        ingest = self._random.choice(system.ingests)
        system.start_ingest(system.free_disk())
        system.ingests.remove(ingest)
        with system.acting(ingest.owner):
            system._go(system.end_ingest(ingest))
        self._kill_at_its_end(ingest.owner)

    def _kill_at_its_end(self, owner: str) -> None:
        """Whatever it is doing: now and then the platform has no patience."""
        if self._random.random() < 0.3:
            self._soon(lambda: self._system.kill(owner), self._random.uniform(0.0, 1.0))

    def _add_ingest(self) -> None:
        if len(self._system.ingests) < 3:
            self._system.start_ingest(self._system.free_disk())

    def _refuse(self) -> None:
        """One of the counters is poison for a while; or who replays what became a dead letter dies."""
        system = self._system
        if not system.replayers:
            return
        counter = self._random.choice(COUNTERS)
        system.store.refused[counter] = system.loop.time() + self._random.uniform(0.1, 3.0)
        if self._random.random() < 0.3:
            (owner,) = system.replayers
            system.replace(owner)

    def _turn_away(self) -> None:
        """Pub/Sub refuses everything, as a wrong proxy or schema does; or its subscription is missing."""
        system = self._system
        system.refusal = self._random.choice([BrokerRejectedError("a schema"), UnkeptError("no subscription")])

        def mended() -> None:
            system.refusal = None

        self._later(mended, 3.0)

    def _kill_flusher(self) -> None:
        self._system.replace(self._random.choice([*self._system.flushers]))

    def _end_flusher(self) -> None:
        """In good order; another one is there before, or soon."""
        system, owner = self._system, self._random.choice([*self._system.flushers])
        del system.flushers[owner]
        system.stops[owner].set()
        system.loop.call_later(5.0, system.kill, owner, context=NOBODY)
        system.start_flusher()

    def _restart_ingest(self) -> None:
        """In good order, and another one comes on the same disk when it is gone. Redis may be gone by then, too."""
        system = self._system
        if len(system.ingests) < 2:
            return
        for flusher in system.flushers:  # so that something waits to be applied
            system.loop.freeze(flusher)
            self._later(partial(system.loop.thaw, flusher), 3.0)
        self._soon(self._random.choice([self._kill_redis, self._empty_redis]), self._random.uniform(0.0, 3.0))
        ingest = self._random.choice(system.ingests)
        system.ingests.remove(ingest)

        async def restart() -> None:
            await system.end_ingest(ingest)
            system.loop.call_later(0.1, system.start_ingest, system.free_disk(), context=NOBODY)

        with system.acting(ingest.owner):
            system._go(restart())

    def _freeze(self) -> None:
        """Where hours follow, it stands still for longer than anything waits for it."""
        owner, loop = self._any(), self._system.loop
        loop.freeze(owner)
        self._later(lambda: loop.thaw(owner), 3.0)

    def _cut_off(self) -> None:
        """One process, or two of them, from something."""
        owners = {self._any() for _ in range(self._random.randint(1, 2))}
        services = self._random.choice([["redis"], ["redis"], [*SERVICES][1:2], [*SERVICES][2:3], [*SERVICES][3:]])
        gone = {(owner, call) for owner in owners for one in services for call in SERVICES[one]}
        network = self._system.network
        network.gone |= gone
        self._later(lambda: network.gone.difference_update(gone), 3.0)

    def _leave_alone(self) -> None:
        """An ingest loses Redis, says so to the store, and then loses that, too. The others take it for dead."""
        system = self._system
        network, owner = system.network, self._random.choice(system.ingests).owner
        redis, fleet = {(owner, "redis")}, {(owner, call) for call in SERVICES["the fleet's entity"]}
        network.gone |= redis
        if self._random.random() < 0.5:
            self._soon(lambda: network.gone.update(fleet), self._random.uniform(0.5, 3.0))
        self._later(lambda: network.gone.difference_update(redis | fleet), 6.0)

    def _suspend(self) -> None:
        """The machine on which all ingests are falls asleep while they read; they wake one after the other."""
        loop, delay = self._system.loop, self._random.uniform(0.0, SUSPENDED)
        for ingest in self._system.ingests:
            loop.create_task(self._system.users.read(ingest, [*COUNTERS], 0.0))
            self._soon(partial(loop.freeze, ingest.owner), delay)
            loop.call_later(SUSPENDED, self._later, partial(loop.thaw, ingest.owner), 0.6, context=NOBODY)

    async def before_a_gap(self) -> None:
        """What is wrong then lasts for long."""
        faults = [self._freeze, self._suspend, self._leave_alone, self._cut_off, self._kill_redis, self._fail_over]
        for _ in range(self._random.randint(0, 2)):
            self._random.choice(faults)()
        await asyncio.sleep(2 * SUSPENDED)

    def _jump(self) -> None:
        clocks = [*self._system.flushers.values(), *(ingest.clock for ingest in self._system.ingests)]
        self._random.choice(clocks).off = self._random.uniform(-7_200, 7_200)

    def _host(self) -> str:
        return self._random.choice([self._system.url.removeprefix("redis://"), *self._system.site.pairs])

    def _kill_redis(self) -> None:
        server = self._system.site.current(self._host())[0]
        server.up = False

        def restart() -> None:
            if not server.up:
                server.start()

        self._later(restart, 2.0)

    def _empty_redis(self) -> None:
        self._system.site.current(self._host())[0].keys = Keys()

    def _lag(self, then: Callable[[str], None]) -> None:
        """The spare is a replica that is behind more and more, until something is done."""
        system, host = self._system, self._host()
        master, spare = system.site.current(host)
        if spare.up and master.up and master.master:
            spare.follow(master)
            self._soon(lambda: then(host), self._random.uniform(0.0, LAG))

    def _fail_over(self) -> None:
        self._lag(self._failed_over)

    def _failed_over(self, host: str) -> None:
        """To the spare, which is behind; some processes reach the old master for a while, if it lives."""
        system, site = self._system, self._system.site
        old, new = site.current(host)
        if not new.up or new.master or site.astray:
            return
        new.promote()
        site.front[host] ^= 1
        owners = [*system.flushers, *(one.owner for one in system.ingests)]
        site.astray = {owner for owner in owners if self._random.random() < 0.5}
        if self._random.random() < 0.3:
            old.up = False

        def end() -> None:
            site.astray.clear()
            if not old.up:
                old.start()
            if site.current(host)[0] is new:
                old.follow(new)

        self._later(end, 4.0)

    def _roll_back(self) -> None:
        self._lag(self._rolled_back)

    def _rolled_back(self, host: str) -> None:
        """Demoted, made equal to its replica, and promoted: the same run of the server, with what it held before."""
        master, spare = self._system.site.current(host)
        if master.up and not spare.master:
            master.follow(spare)
            master.promote()

    def _hang(self) -> None:
        system = self._system
        server = system.site.current(self._host())[0]
        server.hangs_until = system.loop.time() + self._random.uniform(0.1, 3.0)

    def _fill(self) -> None:
        server = self._system.site.current(self._host())[0]
        server.full = True

        def free() -> None:
            server.full = False

        self._later(free, 2.0)

    def _switch(self) -> None:
        """The settings name another Redis, or the first one again, and one ingest is restarted with them."""
        system = self._system
        hosts = [*system.site.pairs]
        system.url = f"redis://{self._random.choice(hosts)}"
        self._end_ingest()

    def _shards(self) -> None:
        """Their number changes while increments are on their way to the highest."""
        system, counter = self._system, self._random.choice(COUNTERS)
        compactor = Compactor(system.store, next(iter(system.flushers.values())), Millis(7 * DAY))
        steps: list[Callable[[], Coroutine[Any, Any, object]]] = [
            lambda: compactor.compact(counter, self._random.randint(1, 2)),
            lambda: system.store.raise_shards(counter, self._random.randint(1, 5)),
            lambda: system.store.remove(counter),
        ]
        system.loop.create_task(self._random.choice(steps)())

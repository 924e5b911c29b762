"""Whatever crashes, is lost, comes twice or late: what was answered 202 is counted once, and each read is exact."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shared.counters.setter import DELETE, RESET, SET
from tests.interleavings.steps.changes import MOST
from tests.interleavings.steps.world import COUNTERS, POISON, World

INDEX = st.integers(0, 1)
THROUGH = st.booleans()
"""Whether it gets through at once. Most faults show after a few steps that did."""
COUNTER = st.sampled_from(COUNTERS)


class WholePath(RuleBasedStateMachine):
    """Two ingests, two flushers, one broker, one store; the rules are the world's faults."""

    repeated = frozenset({"apply", "ack", "forget", "bury again", "raise"})
    """Calls that may happen twice. A broker that is its own overlay takes a publish once: a transaction in one file."""
    reads_checked = True
    written = False
    """Whether ingests write the overlay."""

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.world = World(seed, written=self.written)
        self.world.reads_checked = self.reads_checked

    def get(self, index: int, through: bool) -> None:
        if through:
            self.world.arrives_of(self.world.ingests[index].owner)

    def room(self, counter: str) -> bool:
        return self.world.truths[counter].count < MOST

    @rule(index=INDEX, counter=COUNTER, through=THROUGH)
    def increment(self, index: int, counter: str, through: bool) -> None:
        if self.room(counter):
            self.world.increment(self.world.ingests[index], counter)
            self.get(index, through)

    @precondition(lambda self: self.written)
    @rule(index=INDEX, counter=COUNTER)
    def increment_that_is_published_and_not_confirmed(self, index: int, counter: str) -> None:
        if self.room(counter):
            ingest = self.world.ingests[index]
            self.world.increment(ingest, counter)
            self.world.arrives_of(ingest.owner, but="confirm")

    @rule(index=INDEX, counter=COUNTER, number=st.integers(0, 1), through=THROUGH)
    def increment_with_an_id(self, index: int, counter: str, number: int, through: bool) -> None:
        self.world.send_keyed(self.world.ingests[index], counter, f"id{number}")
        self.get(index, through)

    @rule(index=INDEX, counter=COUNTER, number=st.integers(0, 1), through=THROUGH)
    def batch_under_a_key(self, index: int, counter: str, number: int, through: bool) -> None:
        self.world.send_batch(self.world.ingests[index], counter, f"key{number}")
        self.get(index, through)

    @rule(index=INDEX, counter=COUNTER)
    def increment_beside_poison(self, index: int, counter: str) -> None:
        if self.room(counter) and self.room(POISON):
            self.world.increment(self.world.ingests[index], counter)
            self.world.increment(self.world.ingests[index], POISON)
            self.world.send_keyed(self.world.ingests[index], counter, "id0")

    @rule(counter=COUNTER, ce_id=st.sampled_from([None, "ce0", "ce1"]))
    def somebody_else_publishes(self, counter: str, ce_id: str | None) -> None:
        if self.room(counter):
            self.world.foreign(counter, ce_id)

    @rule(
        index=INDEX,
        counters=st.lists(COUNTER, min_size=1, unique=True),
        max_age=st.sampled_from([None, 0.0, 60.0]),
        through=THROUGH,
    )
    def read(self, index: int, counters: list[str], max_age: float | None, through: bool) -> None:
        self.world.read(self.world.ingests[index], counters, max_age)
        self.get(index, through)

    @rule(index=INDEX, counter=COUNTER, through=THROUGH)
    def read_by_time(self, index: int, counter: str, through: bool) -> None:
        self.world.read_series(self.world.ingests[index], counter)
        self.get(index, through)

    @precondition(lambda self: self.reads_checked)
    @rule(
        index=INDEX,
        counter=COUNTER,
        kind=st.sampled_from([SET, SET, RESET, DELETE]),
        key=st.sampled_from([None, None, "key0", "key1"]),
        through=THROUGH,
    )
    def set(self, index: int, counter: str, kind: str, key: str | None, through: bool) -> None:
        self.world.set(self.world.ingests[index], counter, kind, key)
        self.get(index, through)

    @rule(index=INDEX)
    def pull(self, index: int) -> None:
        self.world.pull(index)

    @rule(index=INDEX)
    def flush(self, index: int) -> None:
        self.world.flush(index)

    @rule(index=INDEX, acks=st.booleans())
    def a_flusher_goes_round(self, index: int, acks: bool) -> None:
        self.world.round_of(index, acks=acks)

    @precondition(lambda self: self.world.network.calls)
    @rule()
    def the_oldest_arrives(self) -> None:
        self.world.run(self.world.network.arrive(self.world.network.calls[0]))

    @rule(index=INDEX)
    def extend(self, index: int) -> None:
        flusher = self.world.flushers[index]
        self.world.start(flusher, self.world.survive(flusher.flusher.extend_once()))

    @precondition(lambda self: self.world.network.calls)
    @rule(
        data=st.data(),
        how=st.sampled_from(["arrive", "arrive", "arrive", "lose answer", "twice", "late", "never"]),
    )
    def network(self, data: st.DataObject, how: str) -> None:
        calls = self.world.network.calls
        call = calls[data.draw(st.integers(0, len(calls) - 1))]
        if how in {"late", "never"}:
            if call.answer is None or call.name == "backoff":
                how = "arrive"
            else:
                self.world.network.lose(call, for_good=how == "never")
                self.world.settle()
                return
        twice = how == "twice" and call.name in self.repeated
        self.world.run(self.world.network.arrive(call, lose_answer=how == "lose answer", again=twice))

    @rule(index=INDEX)
    def what_nobody_reads_is_settled(self, index: int) -> None:
        self.world.settle_once(self.world.ingests[index])

    @rule()
    def all_arrives(self) -> None:
        self.world.deliver_all()

    @rule(index=INDEX)
    def an_ingest_is_killed(self, index: int) -> None:
        self.world.crash_ingest(index)

    @rule(index=INDEX)
    def a_flusher_is_killed(self, index: int) -> None:
        self.world.crash_flusher(index)

    @precondition(lambda self: self.written and self.world.broker.buried())
    @rule()
    def dead_letters_are_kept_no_longer(self) -> None:
        self.world.lose_letters()

    @precondition(lambda self: self.world.broker.buried() or self.world.store._bodies)
    @rule(index=INDEX, through=THROUGH)
    def dead_letters_are_replayed(self, index: int, through: bool) -> None:
        self.world.replay(index)
        if through:
            self.world.arrives_of(self.world.replayers[index].owner)

    @rule(picky=st.booleans())
    def what_is_poison_changes(self, picky: bool) -> None:
        self.world.store.picky = picky

    @rule(index=INDEX)
    def a_replay_is_killed(self, index: int) -> None:
        self.world.crash_replayer(index)

    @rule()
    def leases_run_out(self) -> None:
        self.world.broker.expire_leases()

    @rule(seconds=st.sampled_from([0.3, 1.5, 100.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.world.clock.turn(seconds)

    @rule(counter=COUNTER, num_shards=st.integers(1, 5))
    def shards_grow(self, counter: str, num_shards: int) -> None:
        self.world.run(self.world.grow(counter, num_shards))

    @rule(counter=COUNTER, num_shards=st.integers(1, 3))
    def shards_are_compacted(self, counter: str, num_shards: int) -> None:
        self.world.run(self.world.compact(counter, num_shards))

    @rule(counter=COUNTER)
    def what_was_deleted_is_removed(self, counter: str) -> None:
        self.world.run(self.world.remove(counter))

    @invariant()
    def nobody_made_a_mistake(self) -> None:
        if hasattr(self, "world"):
            self.world.raise_mistakes()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


class DuplicatedPublishes(WholePath):
    """A network that may publish anything twice: totals are right when all has been applied."""

    reads_checked = False
    repeated = WholePath.repeated | {"publish"}


class WrittenOverlay(WholePath):
    """Ingests write the overlay, as on Pub/Sub with Redis: reads are exact though publishes come twice, too."""

    written = True
    repeated = WholePath.repeated | {"publish", "bury", "begin", "withdraw", "confirm", "settle"}


_SETTINGS = settings(max_examples=60, stateful_step_count=70, deadline=None)
TestWholePath = WholePath.TestCase
TestWholePath.settings = _SETTINGS
TestDuplicatedPublishes = DuplicatedPublishes.TestCase
TestDuplicatedPublishes.settings = _SETTINGS
TestWrittenOverlay = WrittenOverlay.TestCase
TestWrittenOverlay.settings = _SETTINGS

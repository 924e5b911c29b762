"""The ids in a SQLite file: how long they live, how much room they take, and what is found of them."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.model.buckets import BEGINNING, DAY, NEVER, StoreMillis
from shared.model.receipts import half_of_id, key_of_envelope, key_of_increment
from shared.model.words import Commit, Receipt
from shared.sqlite import receipts
from shared.sqlite.receipts import _is_id, _sweep_ids
from shared.sqlite.schema import make_tables
from shared.sqlite.store import SqliteStore

LATER = StoreMillis(10**12)


def memory() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    make_tables(db, Path("file"))
    return db


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(memory()) as db:
        yield db


def applied(number: int, expires: StoreMillis = LATER) -> Receipt:
    return Receipt(key_of_increment("a", f"id-{number}"), expires)


def generations(db: sqlite3.Connection) -> list[tuple[int, int]]:
    return db.execute("SELECT number, expires FROM generations ORDER BY number").fetchall()


def test_only_what_says_nothing_but_that_it_was_applied_is_kept_here() -> None:
    one = applied(1)
    assert _is_id(one)
    others = [one._replace(**change) for change in ({"state": "dead"}, {"note": b"{}"}, {"expires": NEVER})]
    strange = ["i", "i" + "A" * 32, "i" + "0" * 31 + " ", one.key + "0", one.key + "\n", key_of_envelope("id-1")]
    strangers = [*others, *(one._replace(key=key) for key in strange)]
    assert not any(_is_id(other) for other in strangers)
    assert [half_of_id(key) for key in strange] == [None] * len(strange)


async def test_an_id_takes_at_most_40_bytes(store: SqliteStore, tmp_path: Path) -> None:
    number = 20_000
    empty = (tmp_path / "countersink.db").stat().st_size
    for begin in range(0, number, 500):
        await store.apply(Commit(tuple(applied(one) for one in range(begin, begin + 500)), ()))
    with closing(sqlite3.connect(tmp_path / "countersink.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert (tmp_path / "countersink.db").stat().st_size - empty <= 40 * number


async def test_an_audit_sees_ids_among_other_receipts_in_the_order_of_keys(store: SqliteStore) -> None:
    others = tuple(Receipt(key, LATER, "applied", b"{}") for key in ("e1", "i", "i" + "f" * 64 + "f", "k1"))
    await store.apply(Commit((applied(1), *others), ()))
    await store.sweep(StoreMillis(1), 1)
    await store.apply(Commit(tuple(applied(one) for one in range(2, 700)), ()))
    async with store.audit_data() as data:
        kept = [one async for page in data.receipts() for one in page]
    keys = [one.receipt.key for one in kept]
    assert keys == sorted(keys)
    assert {*keys} == {*(one.key for one in others), *(applied(one).key[:33] for one in range(1, 700))}
    found = {one.receipt.key: one for one in kept}[applied(5).key[:33]]
    assert (found.time, found.receipt._replace(key="")) == (BEGINNING, Receipt("", LATER))


def test_two_ids_with_equal_halves_in_one_commit_do_not_keep_it_from_being_done(db: sqlite3.Connection) -> None:
    """Or it would be tried for ever, since neither of them is known."""
    pair = [Receipt("i" + "7" * 63 + end, LATER) for end in "ab"]
    receipts.insert(db, pair, BEGINNING)
    for one in pair:
        assert set(receipts.find(db, [one.key])) == {one.key}


def test_a_generation_is_deleted_in_slices_when_all_of_it_has_expired(db: sqlite3.Connection) -> None:
    some = [applied(number, StoreMillis(100 + number)) for number in range(10)]
    receipts.insert(db, some, BEGINNING)
    assert _sweep_ids(db, StoreMillis(1), 4) == 0
    assert generations(db) == [(1, 109), (2, 0)]
    receipts.insert(db, [applied(10, StoreMillis(200))], BEGINNING)
    assert _sweep_ids(db, StoreMillis(109), 4) == 0
    assert [_sweep_ids(db, StoreMillis(110), 4) for _ in range(4)] == [4, 4, 2, 0]
    assert generations(db) == [(2, 200), (3, 0)]
    assert set(receipts.find(db, [one.key for one in (*some, applied(10))])) == {applied(10).key}


def test_a_file_without_new_ids_becomes_empty_and_its_generations_stay(db: sqlite3.Connection) -> None:
    receipts.insert(db, [applied(1, StoreMillis(10))], BEGINNING)
    assert sum(_sweep_ids(db, StoreMillis(11), 4) for _ in range(4)) == 1
    assert generations(db) == [(1, 10), (2, 0)]
    assert _sweep_ids(db, StoreMillis(11), 0) == 0


def test_other_processes_are_not_kept_waiting_by_a_large_generation(db: sqlite3.Connection) -> None:
    """A slice costs what its rows cost, however many there are: SQLite tells its steps."""
    receipts.insert(db, [applied(number, StoreMillis(10)) for number in range(20_000)], BEGINNING)
    _sweep_ids(db, StoreMillis(1), 1)
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    db.set_progress_handler(step, 1_000)
    assert _sweep_ids(db, StoreMillis(11), 200) == 200
    db.set_progress_handler(None, 0)
    assert steps < 20


class Lives(RuleBasedStateMachine):
    """Ids come, time passes, sweeps run, some of them for old messages, and the process is killed in a transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.db = memory()
        self.now = 1
        self.ends: dict[int, int] = {}
        """When each id expires."""

    def teardown(self) -> None:
        self.db.close()

    @rule(numbers=st.lists(st.integers(0, 40), min_size=1, max_size=6, unique=True), life=st.sampled_from([8, 9, 20]))
    def count(self, numbers: list[int], life: int) -> None:
        new = [number for number in numbers if not self.known([number])]
        expires = StoreMillis(self.now + life * DAY)
        receipts.insert(self.db, [applied(number, expires) for number in new], BEGINNING)
        self.ends |= dict.fromkeys(new, expires)

    @rule(days=st.integers(0, 12))
    def wait(self, days: int) -> None:
        self.now += days * DAY

    @rule(limit=st.integers(0, 5), waited=st.integers(0, 20), killed=st.booleans())
    def sweep(self, limit: int, waited: int, killed: bool) -> None:
        """`waited`: the days since when the oldest message has been there."""
        before = StoreMillis(self.now - waited * DAY)
        self.db.execute("BEGIN")
        assert _sweep_ids(self.db, before, limit) <= limit
        self.db.execute("ROLLBACK" if killed else "COMMIT")

    @rule()
    def all_is_swept(self) -> None:
        """Nothing stays for longer than the life of those that came after it."""
        for _ in range(100):
            _sweep_ids(self.db, StoreMillis(self.now), 5)
        (elder, *_) = generations(self.db)
        number = self.db.execute("SELECT count(*) FROM ids WHERE generation = ?", (elder[0],)).fetchone()
        assert elder[1] >= self.now or number == (0,)

    @invariant()
    def whoever_lives_is_known(self) -> None:
        alive = [number for number, end in self.ends.items() if end >= self.now]
        assert self.known(alive) == {*alive}

    @invariant()
    def there_are_two_generations_and_all_ids_are_in_them(self) -> None:
        assert len(generations(self.db)) == 2
        others = "SELECT count(*) FROM ids WHERE generation NOT IN (SELECT number FROM generations)"
        assert self.db.execute(others).fetchone() == (0,)

    def known(self, numbers: list[int]) -> set[int]:
        keys = {applied(number).key: number for number in numbers}
        return {keys[key] for key in receipts.find(self.db, random.sample([*keys], len(keys)))}


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

"""What is known of Datastore's clock."""

from math import inf

from shared.datastore.client import ServerTime
from shared.model.buckets import Instant, Monotonic


def test_what_is_in_doubt_is_known_until_something_better_is_heard() -> None:
    """Otherwise a wall clock that is days off would stand in for it while the server is away."""
    time = ServerTime(0)
    assert (time.bound(Monotonic(5)), time.age(Monotonic(5))) == (0, inf)
    time.hear(Instant(1_000_000_000), Monotonic(5))
    time.doubt()
    assert time.bound(Monotonic(15)) > 1_000_000_000
    assert time.age(Monotonic(15)) == inf
    time.hear(Instant(900_000_000), Monotonic(20))
    assert (time.bound(Monotonic(20)), time.age(Monotonic(20))) == (900_000_000, 0)
    time.hear(Instant(800_000_000), Monotonic(20))
    assert time.bound(Monotonic(20)) == 900_000_000

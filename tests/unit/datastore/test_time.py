"""What is known of Datastore's clock."""

from math import inf

from shared.google.datastore.time import ServerTime


def test_what_is_in_doubt_is_known_until_something_better_is_heard() -> None:
    """Otherwise a wall clock that is days off would stand in for it while the server is away."""
    time = ServerTime(0)
    assert (time.bound(5), time.age(5)) == (0, inf)
    time.hear(1_000_000_000, 5)
    time.doubt()
    assert time.bound(15) > 1_000_000_000
    assert time.age(15) == inf
    time.hear(900_000_000, 20)
    assert (time.bound(20), time.age(20)) == (900_000_000, 0)
    time.hear(800_000_000, 20)
    assert time.bound(20) == 900_000_000

"""How long increments wait for others to share an envelope."""

from ingest.accept.drafts import GAP, STRETCH, Pace

LINGER = 0.02


def streaming(now: float = 1.0) -> Pace:
    """Many travelled in the last publish."""
    pace = Pace(LINGER, metered=True)
    for _ in range(50):
        pace.arrived()
    pace.started(now)
    return pace


def test_a_quiet_system_waits_for_nothing() -> None:
    for metered in (False, True):
        pace = Pace(LINGER, metered=metered)
        pace.arrived()
        assert pace.delay(0.0, busy=False) == 0
        pace.started(0.0)
        pace.arrived()
        assert pace.delay(0.001, busy=False) == 0


def test_beside_a_publish_the_linger_is_the_longest_wait() -> None:
    pace = Pace(LINGER, metered=False)
    pace.started(0.0)
    pace.arrived()
    assert pace.delay(0.001, busy=True) == LINGER
    assert pace.look(0.001 + LINGER) == 0


def test_a_stream_waits_as_long_as_more_comes_and_not_longer_than_its_limit() -> None:
    pace, now = streaming(), 1.0
    pace.arrived()
    while delay := pace.look(now):
        assert delay <= GAP
        now += delay
        pace.arrived()
        assert now < 2, "it never ends"
    assert abs(now - 1 - STRETCH * LINGER) < GAP


def test_a_stream_that_pauses_is_published_at_once() -> None:
    """Clients that wait for their answers send nothing meanwhile."""
    pace = streaming()
    pace.arrived()
    assert pace.delay(1.001, busy=False) == GAP
    assert pace.look(1.001 + GAP) == 0


def test_a_stream_that_ended_is_no_stream() -> None:
    pace = streaming()
    pace.arrived()
    assert pace.delay(1.0 + STRETCH * LINGER, busy=False) == 0


def test_a_stream_does_not_linger_where_publishes_are_free() -> None:
    pace = Pace(LINGER, metered=False)
    for _ in range(50):
        pace.arrived()
    pace.started(1.0)
    pace.arrived()
    assert pace.delay(1.001, busy=False) == 0

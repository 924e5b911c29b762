"""Of many lines of one kind, the first few are logged, and how many were not."""

import logging

import pytest

from countersink_server.serve.logs import KINDS, MOST, SPELL, RepeatLimit


class Logged:
    def __init__(self) -> None:
        self.now = 0.0
        self.calm = RepeatLimit(lambda: self.now)

    def say(self, said: str, *about: object, level: int = logging.WARNING, name: str = "flusher") -> str | None:
        record = logging.LogRecord(name, level, "", 0, said, about, None)
        return record.getMessage() if self.calm.filter(record) else None


def test_the_first_few_are_logged_and_the_next_spell_says_how_many_were_not() -> None:
    logged = Logged()
    said = [logged.say("pulling failed: %s", number) for number in range(20)]
    assert said == [f"pulling failed: {number}" for number in range(MOST)] + [None] * (20 - MOST)
    logged.now = SPELL
    assert logged.say("pulling failed: %s", "again") == f"pulling failed: again (and {20 - MOST} like it before)"
    assert logged.say("pulling failed: %s", "once more") == "pulling failed: once more"


def test_few_are_never_touched() -> None:
    logged = Logged()
    for spell in range(10):
        logged.now = spell * SPELL
        assert [logged.say("%d%%", 1) for _ in range(MOST)] == ["1%"] * MOST


def test_kinds_do_not_silence_one_another() -> None:
    logged = Logged()
    for number in range(10 * KINDS):
        assert logged.say(f"kind {number}")
    assert all(logged.say("the same", name=f"module-{number}") for number in range(10 * MOST))


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.CRITICAL])
def test_what_was_asked_for_and_what_is_critical_is_always_logged(level: int) -> None:
    logged = Logged()
    assert all(logged.say("the same", level=level) for _ in range(10 * MOST))

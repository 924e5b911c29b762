"""Dead letters and their outcomes as text and as JSON. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from countersink_server.commands import output
from flusher.dead_letters.open_letter import OpenedLetter, sums_of
from flusher.dead_letters.replay import ReplayOutcome
from shared.model.words import Receipt

_MOST_COUNTERS: Final = 5
"""Counters that one line names."""
_STATES: Final = {
    "dead": "not counted",
    "applied": "counted already; a replay removes the letter and counts nothing",
    "dropped": "dropped already; a replay removes the letter and counts nothing",
    "unreadable": "unreadable",
}


def line_of(opened: OpenedLetter, found: Mapping[str, Receipt]) -> str:
    """One line of a list."""
    sums = sums_of(opened.envelopes)
    what = f"{_increments(opened.increments)}: {_some(sums)}" if sums else "nothing that can be read"
    state = opened.state(found)
    note = f"  [{_STATES[state]}]" if state in {"applied", "dropped"} else ""
    return _shown(f"{opened.id}  {opened.published}  {what}  ({opened.letter.reason or 'no reason'}){note}")


def dropped(opened: OpenedLetter, found: Mapping[str, Receipt]) -> str:
    """One line about a dropped letter. It leaves out what had been counted before."""
    left, number = opened.left_to_drop(found)
    if opened.flaw is not None:
        what = "dropped; it was unreadable"
    elif number:
        what = f"{_increments(number)} dropped: {_some(sums_of(left, found))}"
    else:
        what = "removed; nothing was left to drop"
    return _shown(f"{opened.id}  {what}")


def lines_of(opened: OpenedLetter, found: Mapping[str, Receipt]) -> Iterator[str]:
    """Everything known about one letter."""
    delivery = opened.letter.delivery
    message = delivery.message
    yield f"id          {_shown(opened.id)}"
    yield f"published   {opened.published}"
    yield f"reason      {_shown(opened.letter.reason or 'no reason is given')}"
    yield f"state       {_STATES[opened.state(found)]}" + (f": {_shown(opened.flaw)}" if opened.flaw else "")
    if opened.flaw is None:
        yield f"receipt     {_shown(opened.envelope_id or opened.envelopes[0].key)}"
        yield f"holds       {_increments(opened.increments)}"
        for envelope in opened.envelopes:
            state = found[envelope.key].state if envelope.key in found else "without a receipt"
            for counter, delta in envelope.sums.items():
                yield f"  {_shown(counter)} {delta:+}  {state}"
            for item in envelope.keyed:
                its = "applied" if item.key in found else state
                yield f"  {_shown(item.counter)} {item.delta:+} under the id {_shown(item.id or item.key)}  {its}"
    if not delivery.token:
        yield "data        the store keeps what it counts; the message is no longer among the broker's dead letters"
        return
    for name, value in message.attributes.items():
        yield f"attribute   {_shown(name)}={_shown(value)}"
    yield f"data        {_shown(message.data.decode(errors='backslashreplace'))}"


def json_of(opened: OpenedLetter, found: Mapping[str, Receipt], *, whole: bool = False) -> str:
    delivery = opened.letter.delivery
    said: dict[str, Any] = {
        "id": opened.id,
        "published": opened.published,
        "reason": opened.letter.reason,
        "state": opened.state(found),
        "flaw": opened.flaw,
        "receipt": opened.envelope_id,
        "increments": opened.increments,
        "counters": sums_of(opened.envelopes),
    }
    if whole:
        said["attributes"] = dict(delivery.message.attributes)
        said["data"] = delivery.message.data.decode(errors="backslashreplace")
    return output.json_of(said)


def outcome_of(outcome: ReplayOutcome) -> str:
    """One line of a replay."""
    said = []
    if outcome.counted:
        said.append(f"{_increments(outcome.counted)} counted")
    if outcome.already:
        said.append(f"{_increments(outcome.already)} counted before")
    if outcome.dropped:
        said.append(f"{_increments(outcome.dropped)} dropped before")
    if outcome.why is not None:
        left = f"{_increments(outcome.left)} left" if outcome.left else "left"
        said.append(f"{left}: {outcome.why}")
    return _shown(f"{outcome.opened.id}  {'; '.join(said) or 'held nothing'}")


def json_of_outcome(outcome: ReplayOutcome) -> str:
    """The outcome as JSON: numbers of increments, and why some are left."""
    numbers = {name: getattr(outcome, name) for name in ("counted", "already", "dropped", "left")}
    return output.json_of({"id": outcome.opened.id} | numbers | {"why": outcome.why})


def _increments(number: int) -> str:
    return "1 increment" if number == 1 else f"{number} increments"


def _some(sums: Mapping[str, int]) -> str:
    some = [f"{name} {delta:+}" for name, delta in [*sums.items()][:_MOST_COUNTERS]]
    if len(sums) > len(some):
        some.append(f"and {len(sums) - len(some)} counters more")
    return ", ".join(some)


def _shown(text: str) -> str:
    """The text on one line, without control characters that a terminal would obey."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)

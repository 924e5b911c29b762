"""Overlays, and brokers that keep one, with one mistake each."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from shared.memory import ProcessOverlay
from shared.model.buckets import BEGINNING, Instant
from shared.model.words import Envelope, Message, View
from shared.ports.broker import Check
from tests.contracts.broken import Fault, calls, gives, nothing
from tests.contracts.broken_brokers import number_of
from tests.world.memory.broker import MemoryBroker, MemoryOverlay

Right = Callable[..., Any]


def drops(method: str, numbers: Callable[..., Iterable[int]]) -> Fault:
    """The method drops entries, too: `numbers` is called with the broker, the right result, and all arguments."""

    async def dropped(broker: MemoryBroker, right: Right, *args: Any) -> Any:
        result = await right(*args)
        broker.pending.settle([*numbers(broker, result, *args)], BEGINNING)
        return result

    return calls(**{method: dropped})


async def _drop_too_late(broker: MemoryBroker, right: Right, tokens: Sequence[str], floor: Instant) -> None:
    pending, broker.pending = broker.pending, type(broker.pending)()
    await right(tokens, floor)
    broker.pending = pending


async def _lower_the_floor(broker: MemoryBroker, right: Right, tokens: Sequence[str], floor: Instant) -> None:
    await right(tokens, floor)
    broker.pending._floor = floor
    broker.pending._floors.clear()
    broker.pending._views.clear()


def _foreign(broker: MemoryBroker, *_: object) -> list[int]:
    return [number for number, held in broker._messages.items() if "ce-type" not in held.message.attributes]


def _all_beside_rubbish(broker: MemoryBroker, _: None, messages: Sequence[Message], check: Check) -> list[int]:
    return [*broker.pending._messages] if any(message.data == b"rubbish" for message in messages) else []


BROKERS: Final[dict[str, Fault]] = {
    "drops too early": drops("pull", lambda _, held, *__: [int(delivery.message_id) for delivery in held]),
    "drops too late": calls(ack=_drop_too_late),
    "leaves the floor": calls(ack=lambda _, right, tokens, floor: right(tokens, BEGINNING)),
    "drops what is buried": drops("bury", lambda _, __, delivery, reason: [int(delivery.message_id)]),
    "falling floor": calls(ack=_lower_the_floor),
    "drops on a stale ack": drops("ack", lambda _, __, tokens, floor: map(number_of, tokens)),
    "drops what is given back": drops("give_back", lambda _, __, tokens: map(number_of, tokens)),
    "forgets foreign messages": drops("publish", _foreign),
    "chokes on rubbish": drops("publish", _all_beside_rubbish),
}


def views(change: Callable[[View], View]) -> Fault:
    """The overlay gives other views."""
    return gives("view", lambda _, found, counters: {counter: change(view) for counter, view in found.items()})


def entries(change: Callable[[Any], Any]) -> Fault:
    """The overlay gives views with other entries."""
    return views(lambda view: replace(view, entries=tuple(map(change, view.entries))))


async def _tear(overlay: object, right: Right, counters: Sequence[str]) -> Any:
    views: dict[str, View] = {}
    for counter in counters:
        views |= await right([counter])
        await asyncio.sleep(0)
    return views


async def _raise_it_here(
    overlay: MemoryOverlay, right: Right, counters: Collection[str], time: Instant, receipt: str
) -> None:
    overlay.__dict__.setdefault("own", {}).update(dict.fromkeys(counters, time))


def _with_own_floors(overlay: MemoryOverlay, found: Mapping[str, View]) -> Mapping[str, View]:
    own = overlay.__dict__.get("own", {})
    return {name: replace(view, floor=max(view.floor, own.get(name, 0))) for name, view in found.items()}


async def _raised_here(overlay: MemoryOverlay, right: Right, counters: Sequence[str]) -> Any:
    return _with_own_floors(overlay, await right(counters))


def _all_that_were_known(overlay: MemoryOverlay, names: Sequence[str], *_: object, exact: bool) -> Sequence[str]:
    known: set[str] = overlay.__dict__.setdefault("known", set())
    known.update(names)
    return [*known]


OF_BOTH: Final[dict[str, Fault]] = {
    "one version": views(lambda view: replace(view, version=1)),
    "newest first": views(lambda view: replace(view, entries=view.entries[::-1])),
    "tears views": calls(view=_tear),
    "names all": calls(names=lambda _, right, prefix, after, limit, *, exact: right("", after, limit, exact=exact)),
    "holds everything": gives("holds", lambda _, held, keys: keys),
    "shows nothing under prefixes": gives("under", lambda _, found, prefixes: ({}, found[1])),
    "shows all under prefixes": calls(under=lambda _, right, prefixes: right([""])),
    "shows no floor of all": gives("under", lambda _, found, prefixes: (found[0], replace(found[1], floor=BEGINNING))),
}
"""Of the overlay of a broker, and of that of a process."""

OVERLAYS: Final[dict[str, Fault]] = {
    **OF_BOTH,
    "raises no floor": calls(changed=nothing),
    "raises it here": calls(changed=_raise_it_here, view=_raised_here),
    "nobody is late": entries(lambda entry: replace(entry, late=False)),
    "says it is not exact": views(lambda view: replace(view, exact=False)),
    "one of each key": views(
        lambda view: replace(view, entries=tuple({entry.key: entry for entry in view.entries}.values()))
    ),
    "forgets ids": entries(lambda entry: replace(entry, keyed=())),
    "names from the beginning": calls(
        names=lambda _, right, prefix, after, limit, *, exact: right(prefix, "", limit, exact=exact)
    ),
    "names without end": calls(
        names=lambda _, right, prefix, after, limit, *, exact: right(prefix, after, exact=exact)
    ),
    "names backwards": gives("names", lambda _, names, *__, exact: names[::-1]),
    "names for ever": gives("names", _all_that_were_known),
    "holds nothing": gives("holds", lambda _, held, keys: ()),
}


def _confirm_at_once(overlay: ProcessOverlay, right: Right, envelope: Envelope, *, confirmed: bool) -> Any:
    number = right(envelope, confirmed=confirmed)
    overlay._pending.confirm(number)
    return number


def _never_late(overlay: ProcessOverlay, right: Right, envelope: Envelope, *, confirmed: bool) -> Any:
    number = right(envelope, confirmed=False)
    if confirmed:
        overlay._pending.confirm(number)
    return number


@asynccontextmanager
async def _write_afterwards(
    overlay: ProcessOverlay, right: Right, envelopes: Sequence[Envelope]
) -> AsyncIterator[None]:
    yield
    for envelope in envelopes:
        overlay._pending.confirm(overlay._add(envelope, confirmed=False))


@asynccontextmanager
async def _never_confirm(overlay: ProcessOverlay, right: Right, envelopes: Sequence[Envelope]) -> AsyncIterator[None]:
    for envelope in envelopes:
        overlay._add(envelope, confirmed=False)
    yield


@asynccontextmanager
async def _let_gone_ones_be(
    overlay: ProcessOverlay, right: Right, envelopes: Sequence[Envelope]
) -> AsyncIterator[None]:
    before = overlay._last
    async with right(envelopes):
        yield
    for number in range(before + len(envelopes) + 1, overlay._last + 1):
        overlay._forget(number)


def _withdraw_the_key(overlay: ProcessOverlay, right: Right, number: int) -> None:
    keys, *_ = overlay._there[number]
    for other in sorted({other for key in keys for other in overlay._numbers[key]}):
        right(other)


async def _raise_all_floors(
    overlay: ProcessOverlay, right: Right, counters: Collection[str], time: Instant, receipt: str
) -> None:
    overlay._pending.settle([-1], time)


async def _settle_all_floors(
    overlay: ProcessOverlay, right: Right, settled: Collection[str], time: Instant, epoch: str
) -> None:
    await right(settled, time)
    overlay._pending.settle([-1], time)


async def _lower_floors(
    overlay: ProcessOverlay, right: Right, settled: Collection[str], time: Instant, epoch: str
) -> None:
    overlay._pending._floors.clear()
    overlay._pending._views.clear()
    await right(settled, time)


async def _settle_the_first(
    overlay: ProcessOverlay, right: Right, settled: Collection[str], time: Instant, epoch: str
) -> None:
    some = [number for key in settled for number in sorted(overlay._numbers.get(key, ()))[:1]]
    for number in some:
        overlay._unlist(number)
    overlay._pending.settle(some, time)


async def _new_versions(overlay: ProcessOverlay, right: Right, counters: Sequence[str]) -> Any:
    overlay._pending._views.clear()
    return await right(counters)


OVERLAYS_OF_A_PROCESS: Final[dict[str, Fault]] = {
    **OF_BOTH,
    "confirms at once": calls(_add=_confirm_at_once),
    "writes afterwards": calls(entered=_write_afterwards),
    "never confirms": calls(entered=_never_confirm),
    "never withdraws": calls(_forget=lambda *_: None),
    "confirms what failed": calls(_forget=lambda overlay, _, number: overlay._pending.confirm(number)),
    "withdraws the key": calls(_forget=_withdraw_the_key),
    "lets gone ones be": calls(entered=_let_gone_ones_be),
    "not late when anew": calls(_add=_never_late),
    "settles without a floor": calls(settle=lambda _, right, settled, time, epoch: right(settled, BEGINNING)),
    "raises nothing": calls(changed=nothing),
    "raises all floors": calls(changed=_raise_all_floors),
    "settles all floors": calls(settle=_settle_all_floors),
    "lowers floors": calls(settle=_lower_floors),
    "settles the first": calls(settle=_settle_the_first),
    "always unsettled": gives("unsettled", lambda overlay, _, limit: dict.fromkeys([*overlay._numbers][:limit], "")),
    "never unsettled": gives("unsettled", lambda *_: {}),
    "rounds floors, as floats": calls(
        settle=lambda _, right, settled, time, epoch: right(settled, Instant(int(float(time))))
    ),
    "says exact": views(lambda view: replace(view, exact=True)),
    "new versions": calls(view=_new_versions),
}

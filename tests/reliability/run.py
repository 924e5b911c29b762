"""Does a row: the fault during the load, then everybody at rest, then the verdict."""

import asyncio
import traceback

from tests.processes.fleet.pairs import LEASE
from tests.reliability.rows import Result, Row
from tests.reliability.scene import Ground, Scene, scene
from tests.reliability.verdict import judge

ENOUGH = 20
"""Requests that are answered before the fault begins, and after it is over."""
REST = 90.0
"""Seconds after the load until all is settled, at most."""
LOOK = 0.1
SHOWN = 5
"""Wrong answers that are shown, at most."""


async def run(row: Row, pair: str, ground: Ground, seconds: float) -> Result:
    """What went wrong stands in the result, so that one row can't take the others with it."""
    result = Result(row, pair)
    try:
        await _run(row, pair, ground, seconds, result)
    except Exception as error:  # of the product's or of the test's own: either way the row has failed
        *_, last = traceback.extract_tb(error.__traceback__)
        result.wrong.append(f"{error!r} at {last.filename}:{last.lineno}")
    return result


async def _run(row: Row, pair: str, ground: Ground, seconds: float, result: Result) -> None:
    async with scene(row, pair, ground) as one:
        await one.busy(ENOUGH)
        begun = one.seconds
        try:
            await row.do(one, seconds)
        except (AssertionError, TimeoutError) as error:
            result.wrong.append(f"during the fault: {error!r}")
        over = one.seconds
        result.seconds = over - begun
        await _recovered(one, result)
        result.recovered = one.seconds - over
        result.load = _load_of(one, one.seconds - begun)
        await one.load.end()
        await _rest(one, result)
        await _ended(one, result)
    result.peak = one.peak.bytes


async def _recovered(one: Scene, result: Result) -> None:
    """Requests are accepted again, and all that was accepted before is in the store, while the load goes on."""
    missing = dict(one.calls.truths.answered())
    try:
        await one.busy(ENOUGH, one.row.recovery)
        async with asyncio.timeout(one.row.recovery):
            while missing := await _unapplied(one, missing):
                one.load.check()
                await asyncio.sleep(LOOK)
    except TimeoutError:
        result.wrong.append(f"it had not recovered after {one.row.recovery:g} s")


async def _unapplied(one: Scene, before: dict[str, int]) -> dict[str, int]:
    """Of each counter, those of these increments that its shards do not hold; all of them if it can't be said."""
    readings = await one.calls.read_all(one.ingests[0].url, before)
    if readings is None:
        return before
    left = {name: mask & ~one.calls.applied(readings[name]) for name, mask in before.items()}
    return {name: mask for name, mask in left.items() if mask}


async def _rest(one: Scene, result: Result) -> None:
    """Nothing is pending, and what nobody could acknowledge has come again."""
    lapsed = max((time for slot in one.slots for time in slot.deaths), default=0.0) + LEASE + 1
    if one.row.hurt or one.row.wires:  # an ack that came too late acknowledges nothing: its message comes again
        lapsed = max(lapsed, one.seconds + 2 * LEASE)
    try:
        async with asyncio.timeout(REST):
            while one.seconds < lapsed or not await _settled(one):
                await asyncio.sleep(LOOK)
    except TimeoutError:
        result.wrong.append(f"not all was settled {REST:g} s after the load")
    said = [await one.calls.read_all(ingest.url) for ingest in one.ingests]
    totals = [{name: int(reading["value"]) for name, reading in readings.items()} for readings in said if readings]
    if len(totals) < len(said):
        result.wrong.append("the totals can't be read from all ingests")
    if any(total != totals[0] for total in totals):
        result.wrong.append("two ingests read different totals at rest")
    result.errors = dict(one.calls.errors)
    result.reads, result.exact_reads = one.calls.readings.count, one.calls.readings.exact
    wrong = sorted(set(one.calls.wrong))
    result.wrong += wrong[:SHOWN] + [f"and {len(wrong) - SHOWN} more of that kind"] * (len(wrong) > SHOWN)
    if totals:
        _judge(one, totals[0], result)
    try:
        await one.command("audit")
    except AssertionError as error:
        result.wrong.append(f"the audit: {error}")


def _judge(one: Scene, totals: dict[str, int], result: Result) -> None:
    verdict = judge(one.calls.truths, totals)
    result.accepted, result.counted, result.lost, result.doubled, unknown = verdict
    result.wrong += [
        f"{number} increments {what}"
        for number, what in ((verdict.lost, "lost"), (verdict.doubled, "doubled"), (unknown, "that nobody sent"))
        if number
    ]


async def _settled(one: Scene) -> bool:
    for ingest in one.ingests:
        readings = await one.calls.read_all(ingest.url)
        if readings is None or any(reading["pending"] for reading in readings.values()):
            return False
    return not await _unapplied(one, dict(one.calls.truths.answered()))


async def _ended(one: Scene, result: Result) -> None:
    """SIGTERM: each drains in time and says so; nothing is left in the broker, and only rubbish is buried."""
    for slots in (one.flushers, one.ingests):
        try:
            await asyncio.gather(*(slot.terminate() for slot in slots if slot.running))
        except (TimeoutError, AssertionError) as error:
            result.wrong.append(f"SIGTERM: a process did not drain and end with 0: {error!r}")
    if left := await one.pair.left():
        result.wrong.append(f"{left} messages are left in the broker")
    found = await one.pair.dead_letters()
    letters = {letter.data for letter in found}
    if any("must" not in letter.reason and "is not" not in letter.reason for letter in found):
        result.wrong.append(f"a dead letter does not say why: {found}")
    if not one.calls.rubbish <= letters <= one.calls.rubbish_tried:
        result.wrong.append(f"dead letters are not what could not be read: {letters ^ one.calls.rubbish}")


def _load_of(one: Scene, seconds: float) -> str:
    clients = one.row.clients
    parts = (
        (clients.insistent + clients.careless, "clients over HTTP"),
        (clients.product, "of countersink.AsyncClient"),
        (clients.foreign, "publishing on the topic"),
        (clients.readers, "readers"),
    )
    who = ", ".join(f"{number} {what}" for number, what in parts if number)
    accepted = sum(mask.bit_count() for mask in one.calls.truths.answered().values())
    return f"{accepted / seconds:,.0f} increments/s: {who}"

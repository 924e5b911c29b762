"""Tells operators what keeps reads from being exact, and takes their word that nothing is missing."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from shared.config.findings import OK, WARN, Finding
from shared.fleet.stopped_members import unsettled
from shared.model.errors import SettingsError, TransientError
from shared.model.fleet import LOOK_EVERY, Fleet, PublisherRecord
from shared.model.times import StoreMillis
from shared.ports.commits import ReceiptBook
from shared.ports.fleet import FleetBook

_PART: Final = "fleet"
PATIENCE: Final = 3 * LOOK_EVERY
"""Seconds within which every running process has looked at the fleet."""


class FleetSetup:
    """Looks at the fleet from outside, without being a member."""

    def __init__(self, book: FleetBook, store: ReceiptBook) -> None:
        self._book = book
        self._store = store

    async def make(self) -> None:
        """Make the entity, if it is missing. If the store does not answer, its own check reports that, not this."""
        with suppress(TransientError):
            await self._book.change(lambda fleet, _: None if fleet.version else fleet)

    async def findings(self) -> Sequence[Finding]:
        try:
            fleet = (await self._book.look()).fleet
            missing = {name: await self._missing(name, record) for name, record in fleet.apart().items()}
        except TransientError as error:
            return [Finding(WARN, _PART, f"can't find out whether reads are exact: {error}")]
        if not fleet.overlay.epoch:
            return [Finding(OK, _PART, "no process uses a shared overlay (COUNTERSINK_OVERLAY), so no read is exact")]
        found = [
            Finding(
                WARN, _PART, f"{_described(name, record, missing[name])}: no read is exact until {_end(record, fleet)}"
            )
            for name, record in fleet.apart().items()
        ]
        if fleet.whole():
            said = f"the overlay holds all that is pending; ingests that publish: {len(fleet.members)}"
            found.append(Finding(OK, _PART, said))
        return found

    async def trust(self, which: str | None = None, *, patience: float = PATIENCE) -> Sequence[str]:
        """Remove the records that keep reads from being exact, or only that of one member or spool. Return what they
        stood for, in words.

        Nothing is removed if the store lacks a receipt that one of them listed when it stopped, unless `which` is the
        name of that one. All of them are struck first. A running process sees that within `patience` seconds and
        changes its record, which is then kept.
        """
        seen = (await self._refuse_missing(which)).members
        before: dict[str, PublisherRecord] = {}

        def strike(fleet: Fleet, now: StoreMillis) -> Fleet:
            before.clear()
            apart = [(name, one) for name, one in fleet.apart().items() if not one.listed or seen.get(name) == one]
            before.update({name: one for name, one in apart if which is None or which in {name, one.spool} - {""}})
            for name in before:
                fleet = fleet.strikes(name, now)
            return fleet

        struck = (await self._book.change(strike)).fleet.members
        if which is not None and not before:
            raise SettingsError(f"no process or spool {which!r} keeps reads from being exact: see countersink doctor")
        if before:
            await asyncio.sleep(patience)

        def remove(fleet: Fleet, _: int) -> Fleet:
            return fleet.without(*(name for name in before if fleet.members.get(name) == struck[name]))

        left = (await self._book.change(remove)).fleet.members
        if alive := sorted(before.keys() & left):
            raise SettingsError(
                f"{', '.join(alive)}: still running, and its increments are not in the overlay: end the process, or"
                " wait until it has reached the overlay, then run this again"
            )
        return [_described(name, one) for name, one in before.items()]

    async def _missing(self, name: str, record: PublisherRecord) -> int | None:
        """How many messages of a stopped member are not applied, by its list; None if there is none."""
        keys = await self._book.left_by(name) if record.listed else None
        return None if keys is None else len(await unsettled(self._store, [*keys]))

    async def _refuse_missing(self, which: str | None) -> Fleet:
        """The fleet, unless messages of a stopped member are missing, for which `which` stands without naming it."""
        fleet = (await self._book.look()).fleet
        found = {
            name: missing
            for name, record in fleet.apart().items()
            if which in {None, record.spool} and which != name and (missing := await self._missing(name, record))
        }
        if found:
            members = fleet.members
            raise SettingsError(
                "; ".join(
                    f"{_described(name, members[name], missing)}: {_flushers(members[name], fleet)}, and try again when"
                    f" they are; to give them up, name the process: --trust-overlay {name}"
                    for name, missing in found.items()
                )
            )
        return fleet


def _described(name: str, record: PublisherRecord, missing: int | None = None) -> str:
    said = f"process {name}"
    if record.topic:
        said += f" on {record.topic}"
    if record.spool:
        said += f", with the spool {record.spool},"
    if record.gone():
        when = datetime.fromtimestamp((record.struck or record.stopped) / 1000, UTC).isoformat(timespec="seconds")
        stopped = f"stopped at {when}" if record.stopped else f"ended at {when} or before"
        if missing is not None:
            return f"{said} {stopped}, and {missing:,} of its messages are not applied"
        return f"{said} {stopped}, and may have accepted what is neither applied nor in the overlay"
    return f"{said} accepts increments that are not in the overlay"


def _flushers(record: PublisherRecord, fleet: Fleet) -> str:
    """What an operator does so that the messages of a stopped member are applied."""
    if any(one.topic == record.topic and not one.struck for one in fleet.flushers.values()):
        return "wait for the flushers of its topic"
    return "no flusher of its topic runs: start one"


def _end(record: PublisherRecord, fleet: Fleet) -> str:
    if record.listed:
        return f"what it accepted is applied ({_flushers(record, fleet)})"
    if record.spool and record.gone():
        return "an ingest runs on its spool file, or you say that nothing is in it (doctor --trust-overlay)"
    if record.gone():
        return "flushers have seen that nothing so old is left, or you say so (doctor --trust-overlay)"
    return "it has reached the overlay, or has ended"

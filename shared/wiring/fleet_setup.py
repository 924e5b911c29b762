"""Tells operators what keeps reads from being exact, and takes their word that nothing is missing."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from shared.config.findings import OK, WARN, Finding
from shared.model.errors import SettingsError, TransientError
from shared.model.fleet import LOOK_EVERY, Fleet, PublisherRecord
from shared.model.times import StoreMillis
from shared.ports.fleet import FleetBook

_PART: Final = "fleet"
PATIENCE: Final = 3 * LOOK_EVERY
"""Seconds within which every running process has looked at the fleet."""


class FleetSetup:
    """Looks at the fleet from outside, without being a member."""

    def __init__(self, book: FleetBook) -> None:
        self._book = book

    async def make(self) -> None:
        """Make the entity, if it is missing. If the store does not answer, its own check reports that, not this."""
        with suppress(TransientError):
            await self._book.change(lambda fleet, _: None if fleet.version else fleet)

    async def findings(self) -> Sequence[Finding]:
        try:
            fleet = (await self._book.look()).fleet
        except TransientError as error:
            return [Finding(WARN, _PART, f"can't find out whether reads are exact: {error}")]
        if not fleet.overlay.epoch:
            return [Finding(OK, _PART, "no process uses a shared overlay (COUNTERSINK_OVERLAY), so no read is exact")]
        found = [
            Finding(WARN, _PART, f"{_described(name, record)}: no read is exact until {_end(record)}")
            for name, record in fleet.apart().items()
        ]
        if fleet.whole():
            said = f"the overlay holds all that is pending; ingests that publish: {len(fleet.members)}"
            found.append(Finding(OK, _PART, said))
        return found

    async def trust(self, which: str | None = None, *, patience: float = PATIENCE) -> Sequence[str]:
        """Remove the records that keep reads from being exact, or only that of one member or spool. Return what they
        stood for, in words.

        All of them are struck first. A running process sees that within `patience` seconds and changes its record,
        which is then kept.
        """
        before: dict[str, PublisherRecord] = {}

        def strike(fleet: Fleet, now: StoreMillis) -> Fleet:
            before.clear()
            apart = fleet.apart().items()
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


def _described(name: str, record: PublisherRecord) -> str:
    said = f"process {name}"
    if record.topic:
        said += f" on {record.topic}"
    if record.spool:
        said += f", with the spool {record.spool},"
    if record.gone():
        when = datetime.fromtimestamp((record.struck or record.stopped) / 1000, UTC).isoformat(timespec="seconds")
        stopped = f"stopped at {when}" if record.stopped else f"ended at {when} or before"
        return f"{said} {stopped}, and may have accepted what is neither applied nor in the overlay"
    return f"{said} accepts increments that are not in the overlay"


def _end(record: PublisherRecord) -> str:
    if record.listed:
        return "what it accepted is applied, or you say that nothing is missing (doctor --trust-overlay)"
    if record.spool and record.gone():
        return "an ingest runs on its spool file, or you say that nothing is in it (doctor --trust-overlay)"
    if record.gone():
        return "flushers have seen that nothing so old is left, or you say so (doctor --trust-overlay)"
    return "it has reached the overlay, or has ended"

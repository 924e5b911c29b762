"""What keeps reads from being exact, for people; and their word that nothing is missing."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from shared.errors import SettingsError, TransientError
from shared.findings import OK, WARN, Finding
from shared.fleet import Fleet, Record
from shared.fleet_ports import FleetBook

_PART: Final = "fleet"


class FleetSetup:
    """Looks on; it is no member."""

    def __init__(self, book: FleetBook | None) -> None:
        """None: the store can't be opened, and its own part says so."""
        self._book = book

    async def make(self) -> None:
        """Make the entity, if it is missing. A store that does not answer is no error here: its own part says so."""
        if self._book is not None:
            with suppress(TransientError):
                await self._book.change(lambda fleet, _: None if fleet.version else fleet)

    async def findings(self) -> Sequence[Finding]:
        if self._book is None:
            return []
        try:
            fleet = (await self._book.look()).fleet
        except TransientError as error:
            return [Finding(WARN, _PART, f"whether reads are exact is not known: {error}")]
        if not fleet.overlay.epoch:
            return [Finding(OK, _PART, "no process has named an overlay that all share: no read is exact")]
        found = [
            Finding(WARN, _PART, f"{_described(name, record)}: no read is exact until {_end(record)}")
            for name, record in fleet.apart().items()
        ]
        if fleet.whole():
            said = f"{len(fleet.members)} processes publish, and the overlay has all that is pending"
            found.append(Finding(OK, _PART, said))
        return found

    async def trust(self, which: str | None = None) -> Sequence[str]:
        """Take away the records that keep reads from being exact, or the one of that member or spool. What they
        stood for, in words.
        """
        gone: list[str] = []

        def step(fleet: Fleet, _: int) -> Fleet | None:
            chosen = {name: one for name, one in fleet.apart().items() if which in {None, name, one.spool}}
            gone[:] = [_described(name, record) for name, record in chosen.items()]
            return fleet.without(*chosen) if chosen else None

        if self._book is None:
            raise SettingsError("the store can't be opened: see countersink doctor")
        await self._book.change(step)
        if which is not None and not gone:
            raise SettingsError(f"no process or spool {which!r} keeps reads from being exact: see countersink doctor")
        return gone


def _described(name: str, record: Record) -> str:
    said = f"process {name}"
    if record.topic:
        said += f" on {record.topic}"
    if record.spool:
        said += f", with the spool {record.spool},"
    if record.struck:
        when = datetime.fromtimestamp(record.struck / 1000, UTC).isoformat(timespec="seconds")
        return f"{said} is gone since {when} or before, and may have accepted what is not applied and in no overlay"
    return f"{said} accepts increments that are not in the overlay"


def _end(record: Record) -> str:
    if record.spool and record.struck:
        return "an ingest runs on its spool file, or you say that nothing is in it (doctor --trust-overlay)"
    if record.struck:
        return "flushers have seen that nothing so old is left, or you say so (doctor --trust-overlay)"
    return "it has reached the overlay, or has ended"

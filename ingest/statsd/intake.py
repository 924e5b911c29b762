"""Takes lines from packets and streams into the tally, and counts those that do not get there."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from ingest.statsd.lines import LARGE, MALFORMED, LineError, read
from ingest.statsd.tally import StatsdTally
from shared.config.name_template import NameTemplate
from shared.model.words import flaw_of_name
from shared.runtime import metrics

NAME: Final = "name"
PREFIX: Final = "prefix"
ROOM: Final = "room"


class Intake:
    """Reads each line once, as it comes. Nothing is kept of it but its part of a sum."""

    def __init__(self, template: NameTemplate, tally: StatsdTally, may_use: Callable[[str], bool]) -> None:
        """`may_use` says whether a counter is within the prefixes of the key."""
        self._template = template
        self._tally = tally
        self._may_use = may_use

    def take(self, data: bytes, *, strictly: bool = False) -> bool:
        """Take the lines of a packet, or of a piece of a stream. Empty ones are ignored. If `strictly`, stop behind the
        first malformed one, and return False if there is one.
        """
        lines = [line for line in data.split(b"\n") if line and not line.isspace()]
        lost: Counter[str] = Counter()
        ends = False
        for number, line in enumerate(lines, 1):
            why = self._flaw_of(line)
            if why is not None:
                lost[why] += 1
                if strictly and why == MALFORMED:
                    lines, ends = lines[:number], True
                    break
        metrics.STATSD_LINES.inc(len(lines))
        for why, number in lost.items():
            metrics.STATSD_UNCOUNTED.labels(why).inc(number)
        return not ends

    def refuse(self) -> None:
        """Count a line that is no line of StatsD."""
        metrics.STATSD_LINES.inc()
        metrics.STATSD_UNCOUNTED.labels(MALFORMED).inc()

    def _flaw_of(self, line: bytes) -> str | None:
        """Why the line does not count. None if it is in the tally now."""
        if b"\0" in line:
            return MALFORMED
        try:
            name, delta = read(line.decode().strip(), self._template)
        except UnicodeDecodeError:
            return MALFORMED
        except LineError as error:
            return error.why
        tally = self._tally
        if name not in tally:
            if flaw_of_name(name) is not None:
                return NAME
            if not self._may_use(name):
                return PREFIX
            if tally.is_full():
                return ROOM
        return None if tally.add(name, delta) else LARGE

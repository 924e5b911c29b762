"""Replays dead letters. They are flushed like messages, but their dead receipts become `applied`.

The commit comes first: it changes the receipts and adds the sums. Then the letters are removed. So a replay may be
killed anywhere and repeated, also by several processes: the second one finds the receipts and only removes letters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from flusher.dead_letters.open_letter import OpenedLetter
from flusher.flush.commit_loop import Flush
from flusher.flush.flush_parts import FlushParts
from flusher.flush.window import TOO_OLD, Window
from shared.model.words import APPLIED, DROPPED
from shared.ports.broker import DeadLetters

PATIENCE: Final = 60.0
"""Seconds to retry while the store is away, for the letters of one step."""
LEFT_AS_UNSURE: Final = f"{TOO_OLD}: replay it with --too-old if you know that it has not"


@dataclass(slots=True)
class ReplayOutcome:
    """The outcome of one letter, in numbers of increments."""

    opened: OpenedLetter
    counted: int = 0
    already: int = 0
    """Counted earlier, or by another letter."""
    dropped: int = 0
    """Dropped earlier."""
    left: int = 0
    why: str | None = None
    """Why it stays a dead letter; None if it does not."""


class Replay:
    """Replays letters that this process got from `letters`."""

    def __init__(self, tools: FlushParts, letters: DeadLetters, *, ages: bool, too_old: bool = False) -> None:
        """`ages`: as for a flusher. `too_old`: also replay letters that are too old to judge. The operator knows that
        they were not applied.
        """
        self._tools = tools
        self._letters = letters
        self._judges = ages and not too_old

    async def run(self, opened: Sequence[OpenedLetter], patience: float = PATIENCE) -> list[ReplayOutcome]:
        """Replay the letters. `TransientError`: the store was away for `patience` seconds. Some may be counted; none is
        lost.
        """
        keys = [*dict.fromkeys(key for one in opened for key in one.receipt_keys())]
        receipts = await self._tools.store.receipts(keys)
        now, promises = await self._tools.store.now(), await self._tools.promise_keeper.promises()
        window = Window(revives=True)
        outcomes = []
        for one in opened:
            outcome = ReplayOutcome(one, why=one.flaw)
            outcomes.append(outcome)
            until = promises.until(one.letter.delivery.published) if self._judges else None
            if one.vanished(receipts.found) or (until is not None and one.unsure(receipts.found, now, until)):
                outcome.why = LEFT_AS_UNSURE
                outcome.left = sum(envelope.increments for envelope in one.envelopes)
            elif one.flaw is None:
                unknown = any(key not in receipts.found for key in one.receipt_keys())
                window.add(one.letter.delivery, one.envelopes, aged=self._judges and unknown)
        flush = Flush(window, self._tools, self._letters)
        flush.learn(keys, receipts)
        await flush.run(patience)
        tried = [envelope.key for one in outcomes if one.why is None for envelope in one.opened.envelopes]
        if unheard := [key for key in tried if key not in window.known]:  # another process settled them first
            flush.learn(unheard, await self._tools.store.receipts(unheard))
        _tell(outcomes, flush)
        return outcomes


def _tell(outcomes: Iterable[ReplayOutcome], flush: Flush) -> None:
    """Fill in the outcomes. A receipt that was written counts for the first letter that carries it."""
    counted = set(flush.counted)
    for outcome in outcomes:
        if outcome.why is not None:
            continue
        for envelope in outcome.opened.envelopes:
            key, number = envelope.key, envelope.increments
            state = flush.window.known.get(key, APPLIED)  # without a receipt it was settled long ago
            if state == DROPPED:
                outcome.dropped += number
            elif state != APPLIED:
                outcome.left += number
                outcome.why = outcome.why or flush.why[key]
            elif key not in counted:
                outcome.already += number
            else:
                keyed = {item.key for item in envelope.keyed} & counted
                outcome.already += len(envelope.keyed) - len(keyed)
                outcome.counted += number - len(envelope.keyed) + len(keyed)
                counted -= {key, *keyed}

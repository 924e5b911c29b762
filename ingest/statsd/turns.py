"""Limits how much of StatsD is read in one turn of the event loop: a flood of lines must not hold up requests."""

import asyncio
from collections import deque
from typing import Final, Protocol

PIECE: Final = 8_192
"""Bytes that a sender gets taken before others have their turn."""
MOST_BYTES: Final = 16_384
"""So many bytes of all senders, as pieces, are taken before other work of the process gets a turn: some milliseconds,
if the lines are short.
"""


class Sender(Protocol):
    """Has bytes that wait to be taken."""

    def take(self) -> int:
        """Take a piece. Returns its size, or 0 if there is nothing more: then it waits no longer."""


class Turns:
    """Senders with bytes to take. They take turns, a piece each."""

    def __init__(self) -> None:
        self._waiting: deque[Sender] = deque()

    def wait(self, sender: Sender) -> None:
        """Let the sender take its pieces, soon."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        if sender not in self._waiting:
            self._waiting.append(sender)

    def _turn(self) -> None:
        left = MOST_BYTES
        try:
            while self._waiting and left > 0:
                sender = self._waiting.popleft()
                if size := sender.take():
                    self._waiting.append(sender)
                left -= size
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._turn)

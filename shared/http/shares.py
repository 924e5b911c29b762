"""Divides a limit among those who use it: the one rule of a fair share, which admission, bodies, places, unread bytes,
pending bytes and new counters follow.
"""


def excess_of(own: int, more: int, left: int) -> int:
    """The rule of `Shares`, where somebody else knows what is left: the excess of a holder who has `own` and wants
    `more`, if so much is `left` then.
    """
    return own + more - left if own and own + more > left else 0


class Shares:
    """Who holds how much of a limit, and how much more it may have.

    The rule: a holder may have as much as is then left for others. Whoever holds nothing gets in while there is room.

    So one alone gets half of the limit, and each of two that begin together a third. Nobody has to know how many will
    come: what the first ones leave is divided in the same way. Six clients that come one after the other, and each take
    of 12 places what they get:

    >>> places = Shares(12)
    >>> def take(client: str) -> int:
    ...     while places.left(1) >= 0 and not places.excess(client, 1):
    ...         places.enter(client, 1)
    ...     return places.held_by(client)
    >>> {client: take(client) for client in "abcdef"}
    {'a': 6, 'b': 3, 'c': 1, 'd': 1, 'e': 1, 'f': 0}

    With one more, "a" would hold 7 while 5 are left. "b" to "e" began later, and got less. "f" finds no room. A holder
    keeps what it has, even if its share becomes smaller.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        """By all together."""
        self.holders: dict[str, int] = {}
        """What each of them holds."""

    def held_by(self, holder: str) -> int:
        return self.holders.get(holder, 0)

    def left(self, more: int) -> int:
        """What is left for others if one gets so much more. There is no room for it if that is below 0."""
        return self.limit - self.held - more

    def excess(self, holder: str, more: int) -> int:
        """By how much the holder would exceed its share with so much more: 0 if it may have that. When so much has
        left, from others or from itself, it may. With 0 more: by how much it exceeds its share now.
        """
        return excess_of(self.held_by(holder), more, self.left(more))

    def enter(self, holder: str, more: int) -> None:
        """Give the holder so much more, without asking whether it may have it."""
        self.held += more
        self.holders[holder] = self.holders.get(holder, 0) + more

    def leave(self, holder: str, less: int) -> None:
        """Take so much back."""
        self.enter(holder, -less)
        if not self.holders[holder]:
            del self.holders[holder]

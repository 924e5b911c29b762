"""The scopes that keys have, and the sets of them that requests need. One scope of a set is enough. Pure."""

from typing import Final

WRITE: Final = "write"
READ: Final = "read"
ADMIN: Final = "admin"
SCOPES: Final = (WRITE, READ, ADMIN)

OPEN: Final = frozenset[str]()
"""No key is needed."""
ANY: Final = frozenset(SCOPES)
TO_READ: Final = frozenset({READ})
TO_COUNT: Final = frozenset({WRITE})
"""What a request needs that counts."""
TO_ADMINISTER: Final = frozenset({ADMIN})
"""What a request needs that changes or exports counters other than by counting."""
TO_FOLLOW: Final = frozenset({READ, WRITE})
"""If you may count, you may also ask what became of it."""

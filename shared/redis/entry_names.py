"""Lists the counters that have an entry in Redis."""

import contextlib
from collections.abc import Sequence
from typing import Final

from shared.model.fleet import NamedOverlay
from shared.redis.entry_scripts import BEGIN
from shared.redis.links import AwayError, Script
from shared.redis.server import Server

NAMES: Final = Script(
    BEGIN
    + """
return {'ok', redis.call('ZRANGEBYLEX', P .. 'names', ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])}
"""
)
"""Arguments: identity, the first and the last name as ZRANGEBYLEX has them, how many names or -1 for all."""


async def names_in(
    server: Server, overlay: NamedOverlay, prefix: str, after: str, limit: int | None
) -> Sequence[str] | None:
    """What Redis answers; None if it does not."""
    if not server.up or not overlay.epoch:
        return None
    first, last = b"[" + prefix.encode(), b"[" + prefix.encode() + b"\xff"
    if after and after >= prefix:
        first = b"(" + after.encode()
    with contextlib.suppress(AwayError):
        reply = await server.ask(NAMES, overlay, first, last, -1 if limit is None else limit)
        if reply[0] == b"ok":
            return [name.decode() for name in reply[1]]
    return None

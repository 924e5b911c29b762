"""Lists counters: those in the store, together with those whose increments are all pending or dead."""

from collections.abc import Sequence

from shared.model.errors import InexactError
from shared.ports.overlay import Overlay
from shared.ports.store import CounterNames


class AllNames:
    """Lists every counter that has an accepted increment."""

    def __init__(self, store: CounterNames, overlay: Overlay) -> None:
        self._store = store
        self._overlay = overlay

    async def listed(self, prefix: str, after: str, limit: int) -> tuple[Sequence[str], bool]:
        """A page, and whether it is known to lack no counter that had an accepted increment before the call."""
        try:
            return await self.page(prefix, after, limit, exact=True), self._overlay.shared
        except InexactError:
            return await self.page(prefix, after, limit), False

    async def page(
        self, prefix: str, after: str, limit: int, until: str | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        """Names as `CounterNames.names` returns them. Some may turn out not to exist when they are read.

        Increments move from the overlay to the dead letters or the store, and from the dead letters to the store. So
        these are read in that order: a counter that moves meanwhile is found twice and not missed. With `exact`,
        `InexactError` if an overlay that is shared may lack increments that other processes accepted.
        """
        exact = exact and self._overlay.shared
        pending = await self._overlay.names(prefix, after, limit, exact=exact)
        dead = await self._store.dead_names(prefix, after, limit)
        stored = await self._store.names(prefix, after, limit, until)
        names = sorted({*pending, *dead, *stored}) if pending or dead else stored
        return [name for name in names if until is None or name <= until][:limit]

"""The route that counts CloudEvents."""

from functools import partial
from typing import Final

from aiohttp import web

from ingest.access.caller import CALLER, Caller
from ingest.http.bodies import Bodies
from ingest.http.requests import Query
from ingest.parsing.events import Events, none_valid, reader_of
from ingest.parsing.json_object import BodyError
from ingest.publishing.admission import weight_of
from ingest.publishing.new_names import PAGE, NewNames, Trial, refusal
from ingest.publishing.publishing import Publishing
from ingest.publishing.uses import Uses
from ingest.routes.increments import AnswerTiming, IncrementRoutes
from shared.runtime import metrics

_OTHER: Final = "other data was accepted under this 'source' and 'id': send this under a new id"
_TOGETHER: Final = "An event counts as a whole or not at all"


class EventRoutes:
    """Each event becomes one envelope, whose id is made from the event's owner, source and id."""

    def __init__(
        self, writes: IncrementRoutes, publishing: Publishing, bodies: Bodies, new_names: NewNames | None
    ) -> None:
        self._writes = writes
        self._publishing = publishing
        self._bodies = bodies
        self._new_names = new_names

    async def post(self, request: web.BaseRequest, query: Query) -> web.Response:
        """POST /v1/events"""
        timing = AnswerTiming(query)
        caller, writes = request[CALLER], self._writes
        timing.check(caller)
        try:
            read = reader_of(request.headers)
        except BodyError:
            metrics.REJECTED.inc()
            raise
        found, size = await writes.read(request, lambda body: _checked(caller, timing, read(body)))
        weight, bad = weight_of(found.batch.increments + found.bad, size), found.bad
        with writes.place(request, timing):
            caller.spend(found.batch.increments)
            with writes.trial(caller) as trial:
                try:
                    self._refuse_others(found, caller)
                    await self._refuse_new(found, trial)
                finally:
                    if more := found.bad - bad:
                        metrics.REJECTED.inc(more)
                        self._bodies.refused(caller.tenant, size * more // (len(found.events) + found.bad), more)
                names = [*found.batch.by_counter()] if timing.value else []
                batches = [(caller.event_id(event.source, event.id), event.batch) for event in found.events]
                drafts = self._publishing.add_wholes(batches, caller.tenant, weight)
            return await writes.answer(request, found, drafts, timing, uses=Uses(drafts, 0), names=names)

    def _refuse_others(self, found: Events, caller: Caller) -> None:
        """Reject the events that are known to have been accepted with other data, as they would not count; and those
        with deltas that the caller may not send.
        """
        is_other, allowed = self._publishing.is_other, caller.deltas
        reasons: dict[int, str] = {}
        for event in found.events:
            if flaw := allowed.flaw_of(event.ends[0]) or allowed.flaw_of(event.ends[1]):
                reasons[event.place] = f"with this key, 'delta' {flaw}"
            elif is_other(caller.event_id(event.source, event.id), event.batch):
                reasons[event.place] = _OTHER
        if reasons:
            found.refuse(reasons)
            if found.bad == 1 and not found.events:
                (reason,) = reasons.values()
                raise BodyError(422, reason, "id" if reason is _OTHER else "delta")
            if not found.events:
                raise none_valid(found)

    async def _refuse_new(self, found: Events, trial: Trial) -> None:
        """Reject the events that name new counters for which there is no room. Raises `ShareError` if no other is
        left.
        """
        if self._new_names is None:
            return
        admit = partial(self._new_names.admit_together, trial=trial, hint=_TOGETHER)
        names = found.batch.changed()
        if len(names) <= PAGE and not await admit(names):
            return
        reasons: dict[int, str] = {}
        for event in found.events:
            if refused := await admit(event.batch.changed()):
                reasons[event.place] = next(iter(refused.values()))
        if reasons:
            found.refuse(reasons)
            if not found.events:
                raise refusal(next(iter(reasons.values())))


def _checked(caller: Caller, timing: AnswerTiming, found: Events) -> Events:
    """The events, if all of their counters are the caller's, and not too many for the answer."""
    caller.check_size(found.batch.increments)
    caller.check_names(found.batch.by_counter())
    timing.check_number(found.batch)
    for event in found.events:
        event.batch.keyed = caller.owned_items(event.batch.keyed)
    return found

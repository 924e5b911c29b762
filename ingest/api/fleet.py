"""The fleet: which processes the store knows, and whether reads can be exact."""

from typing import Annotated, Literal

from msgspec import Meta

from ingest.api.fields import Instant, Json
from ingest.http.problems import Problem
from ingest.http.requests import Call
from shared.fleet import FleetView
from shared.model import fleet
from shared.model.buckets import StoreMillis, written_at
from shared.model.errors import TransientError
from shared.model.fleet import FlusherRecord, PublisherRecord

Struck = Annotated[
    Instant | None,
    Meta(
        description="When other processes took it for dead. It is removed when none of its increments can be pending."
    ),
]


class IngestMember(Json):
    id: str
    """The id of one run of a process. All processes with memory:// on one spool or topic share one."""
    topic: str
    """Where it publishes."""
    state: Literal["joined", "apart", "stopped", "struck"]
    """`joined`: the shared overlay has everything that it accepted. `apart`: the overlay may lack some of it.
    `stopped`: it ended in good order, and some of it is not applied yet. `struck`: it was taken for dead.
    """
    spool: bool
    """Whether it may have envelopes in a spool file."""
    struck: Struck


class FlusherMember(Json):
    id: str
    topic: str
    state: Literal["at work", "struck"]
    struck: Struck


class Fleet(Json):
    """The processes on this store."""

    whole: bool
    """Whether reads can be exact: there is a shared overlay, and every ingest has `joined` it."""
    as_of: Instant
    """The store's clock."""
    ingests: list[IngestMember]
    flushers: list[FlusherMember]


class FleetRoute:
    """Answers from the entity that all processes on one store share. A file has none."""

    def __init__(self, looks: FleetView | None) -> None:
        self._looks = looks

    async def get_fleet(self, _: Call) -> Fleet:
        """List the ingests and flushers that the store knows

        A process that was killed stays in the list until the others notice. A service on one file has no list, and
        answers 404.
        """
        if self._looks is None:
            raise Problem(404, "this service uses a SQLite file, which has no list of its processes")
        look = await self._looks.get()
        if look is None:
            raise TransientError("the store does not answer, so its list of processes can't be read: try again later")
        return Fleet(
            look.fleet.whole(),
            written_at(look.now / 1000),
            [_ingest(look.fleet, name, one) for name, one in sorted(look.fleet.members.items())],
            [_flusher(name, one) for name, one in sorted(look.fleet.flushers.items())],
        )


def _ingest(known: fleet.Fleet, name: str, record: PublisherRecord) -> IngestMember:
    state: Literal["joined", "apart", "stopped", "struck"]
    if record.stopped:
        state = "stopped"
    else:
        state = "struck" if record.struck else "joined" if known.joined(record) else "apart"
    return IngestMember(name, record.topic, state, bool(record.spool), _instant(record.struck))


def _flusher(name: str, record: FlusherRecord) -> FlusherMember:
    return FlusherMember(name, record.topic, "struck" if record.struck else "at work", _instant(record.struck))


def _instant(time: StoreMillis) -> str | None:
    return written_at(time / 1000) if time else None

"""How the command map reports a job that has ended."""

from typing import TYPE_CHECKING, Any, Final

from countersink_server.commands.output import json_of, note, tell
from countersink_server.commands.progress import lasting
from shared.model import instants
from shared.model.errors import CountersinkError
from shared.model.jobs import DELETE, DONE, FAILED, NUMBERS

if TYPE_CHECKING:
    from countersink import JobStatus

UNSEEN: Final = "Counters with nothing applied yet were left out: only a COUNTERSINK_OVERLAY in Redis knows them"


GONE: Final = (
    "If this job was interrupted, the counters that it had deleted until then may be missing in these numbers: they are"
    " gone, so nobody can count them again"
)


def report(job: "JobStatus", *, as_json: bool, resumed: bool = False) -> None:
    """`resumed`: it may have been started before."""
    if as_json:
        tell(json_of(_plain(job)))
    else:
        took = (job.finished - job.started).total_seconds() if job.finished else 0.0
        tell(
            f"job {job.id} {job.state}: counters visited {job.visited:,}, changed {job.changed:,},"
            f" failed {job.failed:,}; pages {job.tasks:,}, rounds {job.depth}, {lasting(took)}"
        )
    if not job.sees_pending and job.state == DONE:
        note(UNSEEN)
    if job.kind == DELETE and resumed:
        note(GONE)
    if job.state == FAILED:
        raise CountersinkError(f"job {job.id} failed: {job.reason}")
    if job.failed:
        examples = "; ".join(f"{counter}: {reason}" for counter, reason in job.examples)
        raise CountersinkError(f"{job.failed} counters could not be changed, among them {examples}")


def _plain(job: "JobStatus") -> dict[str, Any]:
    """The fields as the service sends them."""
    values = {name: getattr(job, name) for name in job.__slots__}
    values |= {"from": values.pop("begin"), "to": values.pop("end")}
    for name in ("started", "finished", "from", "to"):
        if values[name] is not None:
            values[name] = instants.written(values[name])
    if job.by is None:
        del values["from"], values["to"]
    for name in (*NUMBERS.values(), "by"):
        if values[name] is None:
            del values[name]
    values["examples"] = [{"counter": counter, "reason": reason} for counter, reason in job.examples]
    return values

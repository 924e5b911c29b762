"""docs/reliability.md: the table of the results, how to make it again, and what it does not show."""

import os
import platform
from collections.abc import Sequence
from typing import Final

from shared.model.buckets import DAY
from shared.model.receipts import CLIENT_IDS_REMEMBERED
from tests.http.fuzz.run import Tally
from tests.reliability.fuzzing import section
from tests.reliability.rows import PAIRS, Result

HEAD: Final = (
    "fault",
    "on",
    "load during it",
    "seconds",
    "accepted",
    "counted",
    "lost",
    "doubled",
    "exact reads, all right",
    "not answered 2xx at first",
    "recovered after",
    "peak memory",
)
IDS_DAYS: Final = CLIENT_IDS_REMEMBERED // DAY

TEXT: Final = """\
# Reliability: which faults we cause, and what happened

`make reliability` writes this file; do not edit it. Each row of the table starts real processes of Countersink, has
clients count, causes one fault again and again, and then compares the totals with what was accepted. All rows take
three quarters of an hour, and `fuzz` takes another hour. `make reliability ARGS='--only ROW'` runs one row
(`--seconds N`: for how long). `make test` runs some rows for a few seconds.

Made on {machine}. Clients, processes and emulators all ran on this machine.

{table}
## How to read it

- **accepted**: increments that were answered 2xx. **counted**: increments in the total at the end. More may be
  counted than accepted: if the answer to an increment was cut off, it may count, once.
- **lost**: accepted, but not in the total. **doubled**: in the total more than once. Both are known for each
  increment: each adds another power of four, so the digits of a total say which increments it contains, and how
  often.
- Most clients send with ids and keys until they are accepted, to any ingest. Some of them use `AsyncClient`. One
  increment in ten is sent once more afterwards. Some clients send once, without an id. Others publish on the topic,
  sometimes twice, and sometimes unreadable messages.
- **exact reads**: reads under load that said `"exact": true`. Each contained everything that had been answered before
  the read began, and nothing twice. On Pub/Sub without Redis, no read says so.
- **not answered 2xx at first**: attempts of clients. Every request with an id was accepted in the end.
- **recovered after**: from the end of the fault until requests are accepted and everything accepted is in the store,
  while the load goes on. Leases are 3 s here; the default is 60.
- **peak memory**: the largest resident set of any process of Countersink.
- A row also fails if an answer is not one of the API's, if a process does not end with 0 after SIGTERM, if a message
  is left in the broker or becomes a dead letter without reason, if a traceback is logged, or if `countersink audit`
  finds a difference at the end.

{fuzzed}## What Countersink relies on

- **The broker and the store keep what they have acknowledged.** Countersink has no second copy. With SQLite, both are
  one file, and the disk must have written what `fsync` says it has written.
- **The spool** is a file on the disk of one ingest. Its increments are counted when that ingest, or another one with
  the same file, runs again. If the disk is lost, so are they.
- **Ids are remembered for at least {ids} days.** After that, the same id may count again. Receipts of envelopes live
  longer than the broker (`COUNTERSINK_RETENTION`) and a spool (`COUNTERSINK_SPOOL_AGE`) keep messages. A message that
  came back later would become a dead letter.
- **Clocks**: wall clocks may be wrong by any amount, because receipts, ages and sweeps use the store's time.
  Datastore tells its time, and a SQLite file counts its own. The boot clock of a machine must not run fast.
- **Redis** does not decide what is counted. For exact reads it must not evict keys (`noeviction` or `volatile-…`).
- **A client that gets no answer has to send the request again, with the same id.** Without an id, an increment whose
  answer was lost may or may not count, and a retry may count it twice.

## What it does not show

- **Emulators are not the services.** Their latencies, quotas, throttling, hot spots and regional failures are not
  those of Google Cloud, and no figure here predicts those.
- **The Pub/Sub emulator** keeps everything in memory, so it is only killed while it is empty. It leases messages to
  connections that are gone. It never moves, throttles or reorders messages as the service does. Leases here are
  shorter than the service allows (10 s).
- **The Firestore emulator** in Datastore mode keeps nothing on disk, not even with `--export-on-exit`. We export it
  over its own interface while nobody uses it, kill it, and start it again on the export. So this does not show what
  the real service does with commits that are under way when it fails. It shows the commits of an instant only some
  time later, as the service does, so reads wait 50 ms (20 ms in the runs of this page). In hundreds of runs, one read
  contained an increment twice, on a machine with nine times the load that it could take. It did not say that it was
  exact. In a later trial at such a load, one of 65,755 reads contained an increment twice, and said that it was exact.
  No total was wrong.
- **`autoscaling`** runs no Kubernetes and no KEDA. A program follows their rules with what the ScaledObject in
  `deploy/kubernetes` says, except that one flusher may be enough and there are 8 at most. It asks a real Prometheus.
  All times of the manifest are divided by ten. Windows of 1 KiB and a slower store give few messages much to do.
- **Everything runs on one machine.** No process's clock is ahead of another's, and processes are killed, not
  machines. `make test` tries power failures without a disk: it cuts the file back to what was synced, at every
  moment."""


def document(results: Sequence[Result], tally: Tally | None) -> str:
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return TEXT.format(table=table(results), fuzzed=section(tally), machine=machine, ids=IDS_DAYS)


def table(results: Sequence[Result]) -> str:
    rows = [HEAD, tuple("---" for _ in HEAD), *map(_cells, results)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cells(result: Result) -> tuple[str, ...]:
    row = result.row
    errors = ", ".join(f"{what}: {number:,}" for what, number in sorted(result.errors.items()))
    return (
        f"`{row.name}`: {row.fault}",
        PAIRS[result.pair],
        result.load,
        f"{result.seconds:.0f}",
        f"{result.accepted:,}",
        f"{result.counted:,}",
        f"{result.lost:,}",
        f"{result.doubled:,}",
        f"{result.exact_reads:,} of {result.reads:,}",
        errors or "none",
        f"{result.recovered:.1f} s",
        f"{result.peak / 2**20:.0f} MiB",
    )


def failures(results: Sequence[Result]) -> list[str]:
    """What must not be, a line each."""
    return [f"{result.row.name} on {PAIRS[result.pair]}: {wrong}" for result in results for wrong in result.wrong]

"""docs/reliability.md: the table, how to make it again, and what it does not show."""

import os
import platform
from collections.abc import Sequence
from typing import Final

from shared.model.receipts import CLIENT_IDS_REMEMBERED, DAY
from tests.http.fuzz.run import Tally
from tests.reliability.fuzzing import section
from tests.reliability.report import table
from tests.reliability.rows import Result

IDS_DAYS: Final = CLIENT_IDS_REMEMBERED // DAY

TEXT: Final = """\
# Reliability: what was done to it, and what came of it

`make reliability` made this file; do not edit it. Each row starts real processes of Countersink, has clients count,
does one fault to them again and again, and then asks for the totals. `make reliability ARGS='--only ROW'` does one row
(`--seconds N`: for how long); all of them take three quarters of an hour, and `fuzz` takes another hour. `make test`
does some of the rows for a few seconds.

Made on {machine}, everything on it: clients, processes and emulators.

{table}
## How to read it

- **accepted**: increments that were answered 2xx. **counted**: those in the total at rest. It may be more than
  accepted: an increment whose answer was cut off may count, once.
- **lost**: accepted, and not in the total. **doubled**: in it more than once. Both are known increment by increment and
  not from sums: each adds another power of four, so that the digits of a total say which increments it holds, and how
  often.
- Most clients send under ids and keys until they are accepted, to any ingest, also over `AsyncClient`; one in
  ten sends once more afterwards. Some send without an id, once. Others publish on the topic themselves, also twice and
  also what can't be read.
- **exact reads**: readings under load that said `"exact": true`; each held all that had been answered before it was
  asked for, and nothing twice. On Pub/Sub without Redis no reading says so.
- **not answered 2xx at first**: attempts of clients; every request under an id was accepted in the end.
- **recovered after**: from the end of the fault until requests are accepted and all that had been accepted is in the
  store, while the load goes on. Leases are 3 s here; by default 60.
- **peak memory**: the largest resident set of any process of Countersink.
- Besides, a row fails if an answer is one that the API does not have, if a process does not end with 0 after SIGTERM,
  if a message is left in the broker or buried without reason, if a traceback is logged, or if `countersink audit`, at
  rest, does not find that all agrees.

{fuzzed}## What it takes for granted

- **The broker keeps what it has acknowledged** until it is acknowledged in turn, for its retention; **the store keeps
  what it has committed**. What these lose is lost: Countersink has no second copy of it. With SQLite both are one file,
  and the disk has to do what `fsync` says that it did.
- **The spool** is a file on the disk of one ingest. What it holds is counted when that ingest, or another one with the
  same file, runs again; if the disk is gone, so is that.
- **Ids are remembered for {ids} days at least.** The same id may count again after that. Receipts of envelopes
  live longer than the broker (`COUNTERSINK_RETENTION`) and a spool (`COUNTERSINK_SPOOL_AGE`) keep messages: one that
  came back later would go to the dead letters.
- **Clocks**: wall clocks may be wrong by any time: receipts, ages and sweeps go by the store's time, which Datastore
  tells and a file counts by itself. The boot clock of a machine must not run ahead of time. Only the older Datastore
  emulator has no time of its own, so there wall clocks have to be right.
- **Redis** has no say in what is counted. It must not evict (`noeviction` or `volatile-…`) for reads to be exact.
- **Who gets no answer has to send again under the same id.** Without an id an increment whose answer was lost may or
  may not count; sent again it may count twice.

## What it does not show

- **Emulators are not the services.** Latencies, quotas, throttling, hot spots and failures of a region are not those
  of Google Cloud, and no figure here is a forecast of them.
- **Pub/Sub's emulator** keeps everything in memory, so that it can only be killed while it holds nothing; it leases to
  connections that are gone; it never moves, throttles or reorders as the service does. Leases here are shorter than the
  service allows (10 s).
- **Firestore's emulator** in Datastore mode keeps nothing on disk, not even with `--export-on-exit`. It is exported
  over its own interface when nobody reaches it, killed, and started again on that export: what a real one does with
  commits that are under way when it fails is not shown. It shows all commits of an instant only some time later, for
  which reads wait 20 ms, as the service itself does. In hundreds of runs one reading held an increment twice, on a
  machine where nine times as much was running as it could take; it did not say that it was exact, and no total was
  ever wrong.
- **The older Datastore emulator** writes to disk every half minute and at SIGTERM. SIGKILL loses commits that it had
  acknowledged, and so does SIGTERM now and then (60 increments of 30,384 in one run). So it is cut off, and killed when
  it has written all. In runs before that reads were refused, as the store was older than what was known to be applied:
  what a store loses is noticed, and can't be mended.
- All runs on one machine: no clock of one process is ahead of another's, and processes are killed, not machines. A
  power failure is tried without a disk: `make test` cuts the file back to what had been synced at every moment.
"""


def document(results: Sequence[Result], tally: Tally | None) -> str:
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return TEXT.format(table=table(results), fuzzed=section(tally), machine=machine, ids=IDS_DAYS)

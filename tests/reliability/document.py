"""docs/reliability.md: the table, how to make it again, and what it does not show."""

import os
import platform
from collections.abc import Sequence
from typing import Final

from tests.reliability.report import table
from tests.reliability.rows import Result

TEXT: Final = """\
# Reliability: what was done to it, and what came of it

`make reliability` made this file; do not edit it. Each row starts real processes of Countersink, has clients count,
does one fault to them again and again, and then asks for the totals. `make reliability ARGS='--only ROW'` does one row
(`--seconds N` for how long, `--pair {pairs}` on which), and `make test` does every row for a few seconds.

Made on {machine}, everything on it: clients, processes and emulators.

{table}
## How to read it

- **accepted**: increments that were answered 2xx. **counted**: those in the total at rest. It may be more than
  accepted: an increment whose answer was cut off may count, once.
- **lost**: accepted, and not in the total. **doubled**: in it more than once. Both are known increment by increment and
  not from sums: each adds another power of four, so that the digits of a total say which increments it holds, and how
  often.
- Most clients send under ids and keys until they are accepted, to any ingest, also over `countersink.client`; one in
  ten sends once more afterwards. Some send without an id, once. Others publish on the topic themselves, also twice and
  also what can't be read.
- **exact reads**: readings under load that said `"exact": true`; each held all that had been answered before it was
  asked for, and nothing twice. On Pub/Sub without Redis no reading says so.
- **not answered 2xx at first**: attempts of clients; every request under an id was accepted in the end.
- **recovered after**: from the end of the fault until requests are accepted and all that had been accepted is in the
  store, while the load goes on. Leases are 3 s here; by default 60.
- **peak memory**: the largest resident set of any process of Countersink.
- Besides, a row fails if an answer is one that the API does not have, if a process does not end with 0 after SIGTERM,
  if a message is left in the broker or buried without reason, or if a traceback is logged.
"""


def document(results: Sequence[Result]) -> str:
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return TEXT.format(table=table(results), machine=machine, pairs="PAIR")

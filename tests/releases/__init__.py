"""What each release has left behind, and tests that every later version finds everything in it.

A folder for each release holds:

    countersink.db.gz   a file with totals, counts by time, ids, pending messages, dead letters, and a job under way
    copy.ndjson         lines of `countersink copy`: counters of that file, and what is remembered
    spool.db.gz         what waits in a spool for Pub/Sub
    messages.json       messages, with what each counts and under which receipts
    expected.json       what is in the file
    entities.json       the entities of a namespace in Datastore, and what they hold

`python -m tests.releases` makes the folder of a release that is to come. Run it again after each change until the tag
is there, and never afterwards.
"""

from pathlib import Path
from typing import Final

RELEASES: Final = sorted(path for path in Path(__file__).parent.iterdir() if (path / "expected.json").exists())
SETTINGS: Final = {
    "COUNTERSINK_FLUSH_INTERVAL": "0.05",
    "COUNTERSINK_LEASE": "1",
    "COUNTERSINK_JOB_TASKS": "1",
    "COUNTERSINK_WINDOWS": "page:=day/100y",
}
"""Of the processes that make the file, and of those that read it."""
TOPIC: Final = "projects/project/topics/counts"

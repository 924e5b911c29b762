"""Mutations of copies between stores, and of what is imported from elsewhere."""

from typing import Any

from tests.mutations.mutation import around, replaced

COPIES = "tests/cli/test_copy.py"
EXPORTS = "tests/cli/test_imports.py"
ARRIVALS = "tests/contracts/test_sqlite.py"


@replaced("a copy forgets the ids", "countersink_server.move.copier.Copier._receipts", COPIES)
async def _(self: Any, some: Any, write: bool) -> int:
    return 0


@around("a copy takes marks of other copies along", "shared.model.moving.is_of_copy", COPIES)
def _(is_of_copy: Any, mark: Any) -> bool:
    return False


@around("marks are copied over those that are there", "countersink_server.move.copier.marks_of", COPIES)
def _(marks_of: Any, copy: str, source: str) -> str:
    return source


@around("a job that runs is taken along", "countersink_server.move.copier.Copier._jobs", COPIES)
async def _(jobs: Any, self: Any, some: Any, write: bool) -> int:
    return int(await jobs(self, [one for one in some if one.state.state != "running"], write))


@around("a copy adds what a counter has already", "countersink_server.move.copier.Copier._checked", COPIES)
async def _(checked: Any, self: Any, page: Any) -> Any:
    await checked(self, page)
    return page


@around("a counter that holds 0 is not copied", "countersink_server.move.copier.Copier._checked", COPIES)
async def _(checked: Any, self: Any, page: Any) -> Any:
    return await checked(self, [one for one in page if one.total])


@replaced("a copy says that all is equal", "countersink_server.move.copier.Copier._unequal", COPIES)
async def _(self: Any, prefix: str) -> Any:
    for _ in ():
        yield "", ""


@around("the sums in notes are copied", "shared.model.moving.said_again", COPIES)
def _(said_again: Any, note: bytes) -> bytes:
    return note


@replaced("the receipt of a request with a key stays behind", "shared.model.moving.moved_receipt", COPIES)
def _(receipt: Any, now: Any) -> Any:
    return None


@around("a receipt is copied with its time in the other store", "shared.model.moving.MovedReceipt.at", COPIES)
def _(at: Any, self: Any, now: Any) -> Any:
    return at(self, now)._replace(expires=self.left)


@replaced(
    "counts by time are added to those that are there", "countersink_server.move.copier.Copier._check_others", COPIES
)
async def _(self: Any, counts: Any) -> None:
    return None


@replaced("a merge does not see what both have counted", "shared.model.moving.MovedReceipt.counted_twice", COPIES)
def _(self: Any, there: Any, source: int) -> bool:
    return False


@around("all that is there counts as counted there, too", "shared.model.moving.copied_from", COPIES)
def _(copied_from: Any, source: int, note: bytes) -> bytes:
    return bytes(copied_from(0, note))


@replaced("a file of lines is of many instants", "shared.moving.ours.StoreOrigin._data", COPIES)
def _(self: Any) -> Any:
    return self._store.audit_data()


@replaced("what the origin counts meanwhile goes unnoticed", "shared.wiring.moving.went_on", COPIES)
def _(source: Any, copied: Any) -> bool:
    return False


@around("counts by time of all origins go to one shard", "shared.model.moving.shard_of_copy", ARRIVALS)
def _(shard_of_copy: Any, source: str) -> int:
    return int(shard_of_copy(""))


@replaced("the rules of the origin are forgotten", "shared.sqlite.buckets.SqliteArrivals.follow", ARRIVALS)
async def _(self: Any, followed: Any) -> None:
    return None


@replaced("every count by time is taken to be there", "shared.sqlite.buckets.SqliteArrivals.held", ARRIVALS, COPIES)
async def _(self: Any, counts: Any) -> Any:
    return [one.delta for one in counts]


@around("a file that is cut off is copied", "shared.moving.ours._lines", COPIES)
def _(lines: Any, file: Any) -> Any:
    import json  # noqa: PLC0415 (it stands in for all of it)

    return [said for line in file.read_bytes().splitlines() if "lines" not in (said := json.loads(line))]


@replaced("an export that names a counter twice is imported", "shared.moving.ours.totals_in", EXPORTS)
def _(file: Any) -> dict[str, int]:
    import json  # noqa: PLC0415 (as above)

    return {one["name"]: one["value"] for one in map(json.loads, file.read_bytes().splitlines())}

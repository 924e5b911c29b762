"""The suites that each store is held to, in one class."""

from tests.contracts.audit_data import AuditDataContract
from tests.contracts.by_time import ByTimeContract
from tests.contracts.compactions import CompactionContract
from tests.contracts.dead import DeadContract
from tests.contracts.guards import GuardContract
from tests.contracts.marks import MarkContract
from tests.contracts.removals import RemovalContract
from tests.contracts.snapshots import SnapshotContract
from tests.contracts.store import StoreContract


class StoreSuites(
    StoreContract,
    SnapshotContract,
    AuditDataContract,
    GuardContract,
    RemovalContract,
    MarkContract,
    CompactionContract,
    DeadContract,
    ByTimeContract,
):
    """Inherit it and say what `store` is: an empty one. those of `finding` are for some stores."""

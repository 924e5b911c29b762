"""The pairs that the fleet runs on."""

from tests.processes.fleet.conftest import firestore_host, pair, pubsub_host

__all__ = ["firestore_host", "pair", "pubsub_host"]

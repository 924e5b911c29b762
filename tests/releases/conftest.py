"""The servers that hold a release's entities."""

from tests.processes.fleet.conftest import firestore_host, on_emulators, pubsub_host, redis, start_redis

__all__ = ["firestore_host", "on_emulators", "pubsub_host", "redis", "start_redis"]

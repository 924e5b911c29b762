"""The emulators as fixtures."""

from tests.emulators.datastore_fixtures import datastore, firestore_host, older_host
from tests.emulators.published import old
from tests.emulators.pubsub_fixtures import before, empty_pubsub, pubsub, pubsub_host
from tests.emulators.redis_fixtures import fleet, network, redis, start_redis

__all__ = [
    "before", "datastore", "empty_pubsub", "firestore_host", "fleet", "network", "old", "older_host", "pubsub",
    "pubsub_host", "redis", "start_redis",
]  # fmt: skip

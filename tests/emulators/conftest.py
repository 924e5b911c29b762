"""The emulators as fixtures."""

from tests.emulators.datastore_fixtures import firestore, firestore_host, older, older_host
from tests.emulators.pubsub_fixtures import empty_pubsub, pubsub, pubsub_host
from tests.emulators.redis_fixtures import fleet, redis, start_redis

__all__ = [
    "empty_pubsub",
    "firestore",
    "firestore_host",
    "fleet",
    "older",
    "older_host",
    "pubsub",
    "pubsub_host",
    "redis",
    "start_redis",
]

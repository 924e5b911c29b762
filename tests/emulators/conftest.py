"""The emulators as fixtures."""

from tests.emulators.datastore_fixtures import firestore, firestore_host, older, older_host

__all__ = ["firestore", "firestore_host", "older", "older_host"]

"""Adapters for Google Cloud: Datastore and Pub/Sub, and their emulators."""

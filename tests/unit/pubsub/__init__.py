"""Tests of `shared.pubsub`."""

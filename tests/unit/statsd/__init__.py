"""Tests of `ingest.statsd`."""

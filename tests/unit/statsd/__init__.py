"""Tests of ingest/statsd."""

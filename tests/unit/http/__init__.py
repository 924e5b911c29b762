"""Tests of `ingest.http`."""

"""Tests of `ingest.accept`."""

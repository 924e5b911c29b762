"""Tests of `ingest.api`."""

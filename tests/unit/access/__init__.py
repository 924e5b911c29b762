"""Tests of `ingest.access`."""

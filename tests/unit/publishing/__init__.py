"""Tests of `ingest.publishing`."""

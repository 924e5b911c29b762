"""Tests of `ingest.parsing`."""

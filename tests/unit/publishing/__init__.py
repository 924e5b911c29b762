"""Tests of `ingest.accept.__init__`."""

"""Tests of `flusher.shards`."""

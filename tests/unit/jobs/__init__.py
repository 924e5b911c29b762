"""Tests of `flusher.jobs`."""

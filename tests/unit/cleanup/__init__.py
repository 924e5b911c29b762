"""Tests of `flusher.cleanup`."""

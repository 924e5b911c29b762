"""Tests of `flusher.flush`."""

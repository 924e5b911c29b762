"""Tests of `flusher.dead_letters`."""

"""Tests of `shared.counters`."""

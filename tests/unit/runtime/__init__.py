"""Tests of `shared.runtime`."""

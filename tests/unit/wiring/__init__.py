"""Tests of `shared.wiring`."""

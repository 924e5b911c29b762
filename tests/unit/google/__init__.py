"""Tests of `shared.google`."""

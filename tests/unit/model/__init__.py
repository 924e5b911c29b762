"""Tests of `shared.model`."""

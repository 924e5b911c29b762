"""Tests of `shared.sqlite`."""

"""Tests of `shared.http`."""

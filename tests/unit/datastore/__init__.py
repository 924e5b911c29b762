"""Tests of `shared.datastore`."""

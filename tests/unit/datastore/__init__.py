"""Tests of `shared.google.datastore`."""

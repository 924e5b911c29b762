"""Tests of `shared.datastore.__init__`."""

"""Tests of `countersink_server.check`."""

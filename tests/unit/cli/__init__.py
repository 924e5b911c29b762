"""Tests of `countersink_server.cli`."""

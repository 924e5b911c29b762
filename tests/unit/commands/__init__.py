"""Tests of `countersink_server.cli.__init__`."""

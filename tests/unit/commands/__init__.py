"""Tests of `countersink_server.commands`."""

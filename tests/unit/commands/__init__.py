"""Tests of `countersink.commands`."""

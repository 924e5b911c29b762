"""Tests of `countersink check`."""

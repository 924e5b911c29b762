"""Tests of countersink import, without a server."""

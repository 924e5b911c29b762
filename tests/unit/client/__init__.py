"""Tests of the package `countersink`."""

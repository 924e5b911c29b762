"""Tests of `shared.fleet`."""

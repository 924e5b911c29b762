"""Tests of `shared.config`."""

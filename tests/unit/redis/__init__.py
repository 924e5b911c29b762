"""Tests of `shared.redis`."""

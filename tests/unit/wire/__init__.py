"""Tests of `shared.wire`."""

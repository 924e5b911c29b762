"""Tests of `countersink.client`."""

"""Faults done to real processes under load, one row of docs/reliability.md each; and a test of each for CI."""

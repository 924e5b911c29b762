"""Adapters in memory: the overlay of one process, and fakes of all ports that pass the contract suites."""

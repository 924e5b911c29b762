"""Moves the clocks of running processes, one process at a time, by a preloaded library."""

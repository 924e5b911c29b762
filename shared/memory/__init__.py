"""Adapters in memory: the overlay of one process, and the tasks of a job that a process runs alone."""

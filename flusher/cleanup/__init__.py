"""Removes what is left of deleted counters and of old jobs."""

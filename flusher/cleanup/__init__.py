"""What is left of deleted counters and of old jobs."""

"""What visits all counters under a prefix."""

"""Bodies to batches. Pure."""

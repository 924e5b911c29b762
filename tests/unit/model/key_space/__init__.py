"""The key space and the walk over it."""

"""The flusher by itself."""

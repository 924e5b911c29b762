"""Sends what a seed generates to the server with its fast path and without, and to fast parsers and slow ones."""

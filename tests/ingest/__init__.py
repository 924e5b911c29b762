"""Ingest by itself."""

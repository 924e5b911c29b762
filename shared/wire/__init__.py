"""Bytes to words and back. Pure."""

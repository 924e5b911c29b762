"""Reads counters that were kept elsewhere, to be added here."""

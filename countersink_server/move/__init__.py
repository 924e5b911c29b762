"""Moves counters here from other places: what an import adds, and what a copy takes along."""

"""Turns settings into ports. Only this package names adapters."""

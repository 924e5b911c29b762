"""Turns the bodies of requests into increments. Pure."""

"""Fleets of real processes on each pair of broker and store, in all the trouble that they are made for."""

"""Which processes publish, and whether the overlay has all that they accepted."""

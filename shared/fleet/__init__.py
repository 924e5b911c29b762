"""The list of processes that publish, and whether the overlay holds everything that they accepted."""

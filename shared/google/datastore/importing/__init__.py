"""Reads the counters of other applications from Datastore, to import them."""

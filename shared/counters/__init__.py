"""What ingest and flushers both do with counters, by ports alone."""

"""Reading, setting and compacting counters, for ingest and flushers. Depends on ports only."""

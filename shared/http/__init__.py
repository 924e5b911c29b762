"""A server for HTTP/1 that bounds what clients can make it hold. Ingest and flushers listen with it."""

"""What ingest and flusher both need: words, codec, ports, settings, and the adapters behind the ports."""
